// The command line of `anyorder report`.

#include <memory>

#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"
#include "launcher/report/report.h"

namespace anyorder::launcher {

Subcommand DeclareReport(CLI::App& front) {
  const auto options = std::make_shared<ReportOptions>();
  CLI::App* command = front.add_subcommand("report", "a run's curves and story as one HTML page");
  command
      ->add_option("--run-dir", options->run_dirs, "run directory; several are compared, at most 6")
      ->required()
      ->allow_extra_args(false)
      ->check(IsNotEmpty());
  command->add_option("--output", options->output, "FILE.html (default: report.html in the run)")
      ->check(IsNotEmpty());
  return {command, [options] { return Report(WriteReport(*options)); }};
}

}  // namespace anyorder::launcher
