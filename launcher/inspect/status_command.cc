// The command line of `anyorder status`.

#include <memory>

#include "launcher/inspect/status_report.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareStatus(CLI::App& front) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = front.add_subcommand("status", "what a run is doing");
  command->add_option("--run-dir", options->run_dir, "run directory")
      ->required()
      ->check(IsNotEmpty());
  command->add_flag("--json", options->json, "one JSON object; with --watch one a line");
  command
      ->add_option("--watch", options->watch_seconds,
                   "look again every SECONDS (default: 2), until the run is done")
      ->expected(0, 1)
      ->default_str("2")
      ->type_name("[SECONDS]")
      ->check(CLI::Range(0.1, 86400.0));
  return {command, [options] { return Report(PrintStatus(*options)); }};
}

}  // namespace anyorder::launcher
