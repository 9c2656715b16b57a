// The command line of `anyorder report`.

#include <memory>

#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"
#include "launcher/report/report.h"

namespace anyorder::launcher {

Subcommand DeclareReport(CLI::App& front) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App* command =
      AddCommand(front, "report", "Write a run's curves and events as one HTML page.",
                 {"anyorder report --run-dir runs/a",
                  "anyorder report --run-dir runs/a --run-dir runs/b --output comparison.html"});
  AddRunDir(command, options->run_dirs, "run directory; repeat it to compare up to 6 runs")
      ->allow_extra_args(false);
  AddPath(command, "--output", options->output, "FILE.html (default: report.html in the run)");
  return {command, [options] { return Report(WriteReport(*options)); }};
}

}  // namespace anyorder::launcher
