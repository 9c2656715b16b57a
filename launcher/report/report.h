// `anyorder report`: what became of a run, or of several, as one HTML page.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace anyorder::launcher {

struct ReportOptions {
  std::vector<std::string> run_dirs;
  std::string output;  // "": report.html in the run directory; of several runs it must be named
};

// Writes the page, atomically, and prints where it is.
// Errors: InvalidArgument if a directory is no run or never started; AlreadyExists if `output` is
// there and no report.
absl::Status WriteReport(const ReportOptions& options);

}  // namespace anyorder::launcher
