// The command line of `anyorder generate`.

#include <memory>

#include "launcher/inference/device_option.h"
#include "launcher/inference/generate.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {
namespace {

// By which rule texts are chosen: search, or draws with --sample.
void DeclareChoice(CLI::App* command, GenerateOptions& options) {
  const CLI::Range count(int64_t{0}, int64_t{1} << 20);
  const CLI::Range positive(int64_t{1}, int64_t{1} << 20);
  const auto add_number = [&](const char* name, double& value, const char* what) {
    return command->add_option(name, value, what)->capture_default_str()->check(IsNumber());
  };
  CLI::Option* sample = command->add_option("--sample", options.samples,
                                            "draw N texts a prompt instead of searching");
  sample->check(positive);
  command->add_option("--beam", options.beam, "width of the search; 1: greedy")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->excludes(sample);
  command->add_option("--best", options.best, "texts a prompt to write, of those the beam holds")
      ->capture_default_str()
      ->check(positive)
      ->excludes(sample);
  add_number("--length-penalty", options.length_penalty,
             "log-probabilities are divided by ((5+n)/6)^A")
      ->excludes(sample);
  command->add_flag("--stop-first", options.stop_first, "stop at the first BEAM texts that ended")
      ->excludes(sample);
  add_number("--temperature", options.temperature, "of the logits")->needs(sample);
  command->add_option("--top-k", options.top_k, "draw from the K likeliest tokens; 0: all")
      ->capture_default_str()
      ->check(count)
      ->needs(sample);
  add_number("--top-p", options.top_p, "draw from the likeliest tokens that make up P")
      ->needs(sample);
  command->add_option("--seed", options.seed, "of the draws")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->needs(sample);
}

}  // namespace

Subcommand DeclareGenerate(CLI::App& front) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = front.add_subcommand("generate", "text from a checkpoint");
  const CLI::Range count(int64_t{0}, int64_t{1} << 20);
  const CLI::Range positive(int64_t{1}, int64_t{1} << 20);
  command->add_option("--run-dir", options->run_dir, "run directory")
      ->required()
      ->check(IsNotEmpty());
  command
      ->add_option("--step,--checkpoint", options->step,
                   "checkpoint (default: the newest good one)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command
      ->add_option(
          "--input", options->input,
          "prompts, one a line; .jsonl: one in each object's field text; -: standard input")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--output", options->output, "FILE.jsonl to make; -: standard output")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--vocab", options->vocab, "spiece.model (default: the run's)")
      ->check(IsNotEmpty());
  command
      ->add_option("--case", options->letter_case,
                   "of the prompts (default: as the run's text was prepared)")
      ->check(CLI::IsMember({"cased", "uncased"}));
  command
      ->add_option(
          "--max-len", options->max_tokens,
          "tokens of a text at most, its end included (default: 128, or what positions allow)")
      ->check(positive);
  command->add_option("--min-len", options->min_tokens, "tokens before a text may end")
      ->capture_default_str()
      ->check(count);
  command
      ->add_option("--block-ngram", options->block_ngram,
                   "no N tokens in a row twice in a text; 0: off")
      ->capture_default_str()
      ->check(count);
  DeclareChoice(command, *options);
  command->add_option("--batch", options->batch, "prompts at once; texts do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--threads", options->threads, "threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
  AddDeviceOption(command, &options->device);
  return {command, [options] { return Report(Generate(*options)); }};
}

}  // namespace anyorder::launcher
