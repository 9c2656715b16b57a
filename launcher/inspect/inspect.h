// `anyorder inspect`: what a checkpoint, a run directory or a dataset holds.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace anyorder::launcher {

struct InspectOptions {
  std::string path;
  bool verify = false;  // read every byte and compare checksums
  bool json = false;
  bool ledger = false;  // of a run: ledger_report.h
  std::string data;     // with ledger: another place of the dataset
};

// Prints to stdout. NotFound if `path` is none of the three; DataLoss if it is damaged.
absl::Status Inspect(const InspectOptions& options);

}  // namespace anyorder::launcher
