// The command line of `anyorder export`.

#include <memory>
#include <string>

#include "launcher/huggingface/export_hf.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareExport(CLI::App& front) {
  const auto options = std::make_shared<ExportOptions>();
  const auto format = std::make_shared<std::string>("hf");
  CLI::App* command =
      AddCommand(front, "export", "Write a checkpoint's weights for other programs.",
                 {"anyorder export --run-dir runs/a --output exported",
                  "anyorder export --run-dir runs/a --step 2000 --output exported"});
  AddRunDir(command, options->run_dir, "run directory");
  AddStep(command, options->step);
  AddChoice(command, "--format", *format, {"hf"}, "hf: a Hugging Face XLNetLMHeadModel");
  AddPath(command, "--output", options->output, "directory to create; absent or empty")->required();
  return {command, [options, format] { return Report(ExportHuggingFace(*options)); }};
}

}  // namespace anyorder::launcher
