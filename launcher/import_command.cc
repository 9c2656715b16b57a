// The command line of `anyorder import`.

#include <memory>
#include <string>

#include "launcher/command_line.h"
#include "launcher/import_hf.h"
#include "launcher/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareImport(CLI::App& front) {
  const auto options = std::make_shared<ImportOptions>();
  const auto format = std::make_shared<std::string>("hf");
  CLI::App* command = front.add_subcommand("import", "make a run of another program's weights");
  command->add_option("--input", options->input, "model directory of Hugging Face")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--output", options->output, "run directory to make; absent or empty")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--format", *format, "hf: Hugging Face XLNetLMHeadModel, safetensors")
      ->check(CLI::IsMember({"hf"}))
      ->capture_default_str();
  command->add_option("--config", options->config, "TOML file (default: continued pretraining)")
      ->check(IsNotEmpty());
  command->add_option("--set", options->overrides, "section.key=value, over the file")
      ->allow_extra_args(false);
  return {command, [options, format] { return Report(ImportHuggingFace(*options)); }};
}

}  // namespace anyorder::launcher
