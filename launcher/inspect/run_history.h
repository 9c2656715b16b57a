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

// A start of the run whose ranks began to train: its `train` record.
struct Beginning {
  int64_t attempt = 0;
  int64_t step = 0;  // it went on after this step
};
std::vector<Beginning> Beginnings(const std::vector<LedgerRecord>& ledger);

}  // namespace anyorder::launcher
