// The command line of `anyorder eval`.

#include <memory>

#include "launcher/inference/device_option.h"
#include "launcher/inference/eval.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareEval(CLI::App& front) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* command = front.add_subcommand("eval", "loss and perplexity on held-out text");
  const CLI::Range count(int64_t{0}, int64_t{1} << 40);
  const CLI::Range positive(int64_t{1}, int64_t{1} << 20);
  command->add_option("--run-dir", options->run_dir, "run directory")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--step", options->step, "checkpoint (default: the newest good one)")
      ->check(count);
  command->add_option("--data", options->data, "held-out dataset (default: eval.shards of the run)")
      ->check(IsNotEmpty());
  command
      ->add_option("--objective", options->objective,
                   "own: as the run trains; causal: perplexity of the whole text, left to right")
      ->check(CLI::IsMember({"own", "causal"}))
      ->capture_default_str();
  command
      ->add_option("--batches", options->batches,
                   "scored batches a lane, 0: all (default: own: eval.batches, causal: 0)")
      ->check(count);
  command
      ->add_option("--batch-size", options->batch_size,
                   "streams the text is cut into (default: own: as configured, causal: 1)")
      ->check(positive);
  command->add_option("--seed", options->seed, "own: masks, orders and pairs (default: eval.seed)")
      ->check(count);
  command
      ->add_option("--set", options->overrides,
                   "own: sampling.key=value or model.mem_len=N, over the run")
      ->allow_extra_args(false);
  command->add_option("--mem-len", options->mem_len, "causal: memory (default: model.mem_len)")
      ->check(count);
  command
      ->add_option("--target-len", options->target_len,
                   "causal: tokens a segment (default: sampling.seq_len)")
      ->check(positive);
  command
      ->add_option("--window", options->window,
                   "causal: read windows of so many tokens, score the last target-len of each")
      ->check(positive);
  command->add_flag("--same-length", options->same_length,
                    "causal: every token sees mem-len tokens, no more");
  command
      ->add_option("--clamp-len", options->clamp_len,
                   "causal: largest encoded distance, -1: no limit (default: model.clamp_len)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30));
  command->add_option("--threads", options->threads, "0: all cores; no digit depends on it")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object");
  AddDeviceOption(command, &options->device);
  return {command, [options] { return Report(Evaluate(*options)); }};
}

}  // namespace anyorder::launcher
