// The command line of `anyorder eval`.

#include <memory>

#include "launcher/inference/device_option.h"
#include "launcher/inference/eval.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareEval(CLI::App& front) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* command = AddCommand(
      front, "eval", "Loss and perplexity of a checkpoint on held-out text.",
      {"anyorder eval --run-dir runs/a --data held-out --json",
       "anyorder eval --run-dir runs/a --data held-out --objective causal --mem-len 512"});
  constexpr int64_t kMost = int64_t{1} << 20;
  AddRunDir(command, options->run_dir, "run directory");
  AddStep(command, options->step);
  AddPath(command, "--data", options->data, "held-out dataset (default: eval.shards of the run)");
  AddChoice(
      command, "--objective", options->objective, {"own", "causal"},
      "own: the run's training objective; causal: perplexity of the whole text, left to right");
  AddCount(command, "--batches", options->batches,
           "batches to score, 0: all (default: eval.batches for own, 0 for causal)");
  AddCount(command, "--batch-size", options->batch_size,
           "lanes that the text is cut into (default: as configured for own, 1 for causal)", 1,
           kMost);
  AddCount(command, "--seed", options->seed,
           "own: seed of masks, orders and pairs (default: eval.seed)");
  AddSettings(command, options->overrides,
              "own: override sampling.KEY or model.mem_len of the run");
  AddCount(command, "--mem-len", options->mem_len,
           "causal: memory length in tokens (default: model.mem_len)");
  AddCount(command, "--target-len", options->target_len,
           "causal: tokens scored per segment (default: sampling.seq_len)", 1, kMost);
  AddCount(command, "--window", options->window,
           "causal: read windows of N tokens and score the last target-len of each", 1, kMost);
  command->add_flag("--same-length", options->same_length,
                    "causal: every token attends to exactly mem-len tokens");
  AddCount(command, "--clamp-len", options->clamp_len,
           "causal: largest encoded distance, -1: no limit (default: model.clamp_len)", -1,
           int64_t{1} << 30);
  AddCount(command, "--threads", options->threads,
           "CPU threads, 0: all cores; does not affect results", 0, 4096)
      ->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object");
  AddDeviceOption(command, &options->device);
  return {command, [options] { return Report(Evaluate(*options)); }};
}

}  // namespace anyorder::launcher
