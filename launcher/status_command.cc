// The command line of `anyorder status`.

#include <memory>

#include "launcher/command_line.h"
#include "launcher/status_report.h"
#include "launcher/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareStatus(CLI::App& front) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = front.add_subcommand("status", "what a run is doing");
  command->add_option("--run-dir", options->run_dir, "run directory")
      ->required()
      ->check(IsNotEmpty());
  command->add_flag("--json", options->json, "one JSON object");
  return {command, [options] { return Report(PrintStatus(*options)); }};
}

}  // namespace anyorder::launcher
