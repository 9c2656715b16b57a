// The command line of `anyorder generate`.

#include <memory>

#include "launcher/inference/device_option.h"
#include "launcher/inference/generate.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kMost = int64_t{1} << 20;

// How texts are chosen: beam search, or sampling with --sample.
void DeclareChoice(CLI::App* command, GenerateOptions& options) {
  CLI::Option* sample = AddCount(command, "--sample", options.samples,
                                 "sample N texts per prompt instead of beam search", 1, kMost);
  AddCount(command, "--beam", options.beam, "beam width; 1 is greedy search", 1, 1024)
      ->capture_default_str()
      ->excludes(sample);
  AddCount(command, "--best", options.best, "hypotheses returned per prompt", 1, kMost)
      ->capture_default_str()
      ->excludes(sample);
  AddNumber(command, "--length-penalty", options.length_penalty,
            "divide log-probabilities by ((5 + n) / 6)^X for n tokens")
      ->capture_default_str()
      ->excludes(sample);
  command
      ->add_flag("--stop-first", options.stop_first,
                 "stop as soon as the beam holds --beam finished texts")
      ->excludes(sample);
  AddNumber(command, "--temperature", options.temperature, "divide logits by X")
      ->capture_default_str()
      ->needs(sample);
  AddCount(command, "--top-k", options.top_k, "sample from the N most likely tokens; 0: all", 0,
           kMost)
      ->capture_default_str()
      ->needs(sample);
  AddNumber(command, "--top-p", options.top_p,
            "nucleus sampling: sample from the most likely tokens of total probability X")
      ->capture_default_str()
      ->needs(sample);
  AddCount(command, "--seed", options.seed, "seed of sampling")
      ->capture_default_str()
      ->needs(sample);
}

}  // namespace

Subcommand DeclareGenerate(CLI::App& front) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = AddCommand(
      front, "generate", "Generate text from a checkpoint.",
      {"anyorder generate --run-dir runs/gpt --input prompts.txt --output texts.jsonl",
       "echo 'Once upon a time' | anyorder generate --run-dir runs/gpt --input - --output - "
       "--sample 3 --top-p 0.9"});
  AddRunDir(command, options->run_dir, "run directory");
  AddStep(command, options->step, "", "--step,--checkpoint");
  AddPath(command, "--input", options->input,
          "prompts, one per line; .jsonl: the field text of each object; -: standard input")
      ->required();
  AddPath(command, "--output", options->output, "FILE.jsonl to write; -: standard output")
      ->required();
  AddPath(command, "--vocab", options->vocab, "spiece.model (default: the run's)");
  AddChoice(command, "--case", options->letter_case, {"cased", "uncased"},
            "letter case of the prompts (default: as the run's text was prepared)");
  AddCount(command, "--max-len", options->max_tokens,
           "most tokens per text, end of text included (default: 128, or what the positions allow)",
           1, kMost);
  AddCount(command, "--min-len", options->min_tokens, "fewest tokens per text", 0, kMost)
      ->capture_default_str();
  AddCount(command, "--block-ngram", options->block_ngram,
           "never repeat N consecutive tokens within a text; 0: off", 0, kMost)
      ->capture_default_str();
  DeclareChoice(command, *options);
  AddCount(command, "--batch", options->batch, "prompts per batch; does not affect results", 1,
           4096)
      ->capture_default_str();
  AddCount(command, "--threads", options->threads, "CPU threads (default: all cores)", 1, 4096);
  AddDeviceOption(command, &options->device);
  return {command, [options] { return Report(Generate(*options)); }};
}

}  // namespace anyorder::launcher
