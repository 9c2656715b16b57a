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
  CLI::App* command = front.add_subcommand("export", "write weights for other programs");
  command->add_option("--run-dir", options->run_dir, "run directory")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--step", options->step, "checkpoint (default: the newest good one)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("--format", *format, "hf: Hugging Face XLNetLMHeadModel")
      ->check(CLI::IsMember({"hf"}))
      ->capture_default_str();
  command->add_option("--output", options->output, "directory to make; absent or empty")
      ->required()
      ->check(IsNotEmpty());
  return {command, [options, format] { return Report(ExportHuggingFace(*options)); }};
}

}  // namespace anyorder::launcher
