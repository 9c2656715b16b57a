// What a run wrote about itself, read back for `anyorder inspect RUN-DIR --ledger`.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"

namespace anyorder::launcher {

struct RunHistory {
  RunConfig config;  // the frozen one
  std::vector<LedgerRecord> ledger;
  std::vector<StepMetrics> metrics;  // of the steps that count, in file order
  std::vector<StepMetrics> redone;   // of the steps that a crash lost
  std::vector<std::string> torn;     // files whose last line was never complete and is left out
};

// Errors: InvalidArgument if `run_dir` is no run; DataLoss naming a damaged ledger line.
absl::StatusOr<RunHistory> ReadRunHistory(const std::string& run_dir);

}  // namespace anyorder::launcher
