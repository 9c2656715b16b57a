// The command line of `anyorder status`.

#include <memory>

#include "launcher/inspect/status_report.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareStatus(CLI::App& front) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = AddCommand(front, "status", "Print the state and progress of a run.",
                                 {"anyorder status runs/a", "anyorder status runs/a --watch 5"});
  AddRunDir(command, options->run_dir, "run directory");
  command->add_flag("--json", options->json, "print one JSON object; with --watch one per line");
  AddNumber(command, "--watch", options->watch_seconds,
            "refresh every X seconds (default: 2) until the run is done", 0.1, 86400.0)
      ->expected(0, 1)
      ->default_str("2");
  return {command, [options] { return Report(PrintStatus(*options)); }};
}

}  // namespace anyorder::launcher
