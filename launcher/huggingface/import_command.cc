// The command line of `anyorder import`.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "launcher/huggingface/import_hf.h"
#include "launcher/huggingface/import_run.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareImport(CLI::App& front) {
  const auto options = std::make_shared<ImportRunOptions>();
  const auto format = std::make_shared<std::string>("hf");
  CLI::App* command = front.add_subcommand("import", "make a run of weights from elsewhere");
  command
      ->add_option("--input", options->input, "model directory of Hugging Face, or run directory")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--output", options->output, "run directory to make; absent or empty")
      ->required()
      ->check(IsNotEmpty());
  command
      ->add_option("--format", *format,
                   "hf: Hugging Face XLNetLMHeadModel, safetensors; run: another run's checkpoint")
      ->check(CLI::IsMember({"hf", "run"}))
      ->capture_default_str();
  command
      ->add_option("--config", options->config,
                   "TOML file (default: hf: continued pretraining, run: as that run)")
      ->check(IsNotEmpty());
  command->add_option("--set", options->overrides, "section.key=value, over the file")
      ->allow_extra_args(false);
  command->add_option("--step", options->step, "run: checkpoint (default: the newest good one)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command
      ->add_option("--positions", options->positions,
                   "run: what new rows of a longer table of learned positions are: copies of the "
                   "old ones in turn, or random")
      ->check(CLI::IsMember({"copy", "random"}))
      ->capture_default_str();
  return {command, [options, format, command] {
            if (*format == "run") return Report(ImportRun(*options));
            for (const char* const option : {"--step", "--positions"}) {
              if (command->count(option) == 0) continue;
              return Report(absl::InvalidArgumentError(absl::StrCat(
                  option, " means nothing with --format hf; leave it out, or use --format run")));
            }
            return Report(ImportHuggingFace(*options));
          }};
}

}  // namespace anyorder::launcher
