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
  CLI::App* command = AddCommand(
      front, "import", "Create a run from pretrained weights.",
      {"anyorder import --input xlnet-base-cased --output runs/continued",
       "anyorder import --format run --input runs/a --output runs/b --set model.mem_len=512"});
  AddPath(command, "--input", options->input, "Hugging Face model directory, or run directory")
      ->required();
  AddPath(command, "--output", options->output, "run directory to create; absent or empty")
      ->required();
  AddChoice(command, "--format", *format, {"hf", "run"},
            "format of --input: hf is a Hugging Face XLNetLMHeadModel in safetensors, run is "
            "another run's checkpoint");
  AddPath(command, "--config", options->config,
          "TOML file (default: for hf, continued pretraining; for run, that run's configuration)");
  AddSettings(command, options->overrides);
  AddStep(command, options->step, "run: ");
  AddChoice(command, "--positions", options->positions, {"copy", "random"},
            "run: rows that a longer table of learned positions adds: repeated copies of the old "
            "rows, or randomly initialised");
  return {command, [options, format, command] {
            if (*format == "run") return Report(ImportRun(*options));
            for (const char* const option : {"--step", "--positions"}) {
              if (command->count(option) == 0) continue;
              return Report(absl::InvalidArgumentError(absl::StrCat(
                  option, " is not used with --format hf; leave it out, or use --format run")));
            }
            return Report(ImportHuggingFace(*options));
          }};
}

}  // namespace anyorder::launcher
