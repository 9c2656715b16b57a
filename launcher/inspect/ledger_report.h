// `anyorder inspect RUN-DIR --ledger`: whether each sample was used as planned, and where the wall
// time went. Offline: it reads the run directory and, where it is there, the dataset.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace anyorder::launcher {

struct LedgerReportOptions {
  std::string run_dir;
  std::string data;  // the dataset, if it is no longer where the run's configuration says
  bool json = false;
};

// Prints to stdout. DataLoss after the report if there is a problem; FailedPrecondition if `data`
// is another dataset.
absl::Status PrintLedgerReport(const LedgerReportOptions& options);

}  // namespace anyorder::launcher
