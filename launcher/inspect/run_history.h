// What a run wrote about itself, read back, and where its wall time went, from the first start to
// the last trace of it.
//
// The ledger and the lines of metrics.jsonl carry times of day; the parts of a step are durations
// that rank 0 measured. Times cut the run into spans, durations fill those of the steps, and the
// two are independent: that they add up is a check.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

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

enum TimeClass {
  kTrain,            // steps that count, without what follows; the all-gather of weights is in it
  kDataWait,         // of these steps
  kCommunication,    // of these steps: gradient reduction, waiting for slower ranks included
  kCheckpointStall,  // of these steps, and the last save of a start until it is committed
  kEvaluation,       // after these steps
  kRedone,   // steps that a crash lost, with their evaluations, and one that ended with an error
  kStart,    // of the first start, until its first step begins
  kRestart,  // after each failed end, until the next first step begins
  kStopped,  // after a requested end, until the next start
  kBookkeeping,  // between steps: metrics, ledger, loss curve; the end of processes
  kNumTimeClasses
};

constexpr auto SpellingsOf(TimeClass) {
  return std::array{"train",  "data_wait", "communication", "checkpoint_stall", "evaluation",
                    "redone", "start",     "restart",       "stopped",          "bookkeeping"};
}
static_assert(SpellingsOf(TimeClass()).size() == kNumTimeClasses);

using TimeShares = std::array<absl::Duration, kNumTimeClasses>;

// From the last trace of the start before (of the first: from its own beginning) to the last of
// this one.
struct AttemptTime {
  int64_t attempt = 0;
  int64_t ranks = 0;
  absl::Duration wall;
  TimeShares shares{};
};

struct WallTime {
  std::vector<AttemptTime> attempts;
  absl::Duration wall;
  TimeShares shares{};

  absl::Duration Sum() const;
  // Whether the shares add up to the wall time within 1 %.
  bool AddsUp() const;
};

// What the sums need of one line of metrics.jsonl; long runs have a million.
struct StepTime {
  int64_t step = 0;
  int64_t attempt = 0;
  absl::Time time = absl::InfinitePast();  // of the line; lines of older versions have none
  double step_ms = 0;
  double data_wait_ms = 0;
  double reduce_ms = 0;
  double ckpt_stall_ms = 0;
  double evaluation_ms = 0;
  int64_t evaluation_attempt = 0;  // a later one where a stop had cut the evaluation off
  bool is_redone = false;
};
StepTime StepTimeOf(const StepMetrics& metrics, bool is_redone);

WallTime MeasureWallTime(const std::vector<LedgerRecord>& ledger,
                         const std::vector<StepTime>& steps);
WallTime MeasureWallTime(const RunHistory& history);

}  // namespace anyorder::launcher
