// How fast each rank of a start is, and who keeps the others waiting, for people and for
// monitoring: run-dir/metrics.prom and run-dir/.launch/pace/ATTEMPT.json (core/train/FORMAT.md).

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/liveness/node_report.h"
#include "core/liveness/straggler_finder.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "launcher/process/periodic_task.h"

namespace anyorder::launcher {

struct RankSummary : liveness::RankPace {
  std::string node;
};

// The ranks of a start whose own time is the most, the most first.
struct AttemptPace {
  int64_t attempt = 0;
  int64_t ranks = 0;  // of the start
  std::vector<RankSummary> slowest;
};

// What a start left of it. NotFound if nothing; DataLoss for another file.
absl::StatusOr<AttemptPace> ReadAttemptPace(const std::string& run_dir, int64_t attempt);

// "rank 3 on n2: compute 130, data wait 5, communication 20 ms a step; own time 1.29 times the
// median, a straggler"
std::string Describe(const RankSummary& rank);

// What metrics.prom says.
struct RunFacts {
  std::string run_id;
  int64_t attempt = 0;
  bool is_running = false;
  std::optional<StepMetrics> last;  // line of the metrics
  std::optional<int64_t> committed_step;
  liveness::RunHealth health;
  std::vector<liveness::RankPace> paces;
  std::map<int, absl::Time> last_ticks;  // by rank: when it last showed that it runs
};

// In the text format of Prometheus.
std::string PrometheusText(const RunFacts& facts);

struct PaceRecorderOptions {
  std::string run_dir;
  std::string run_id;
  int64_t attempt = 0;
  int64_t ranks = 1;
  double straggler_ratio = 1.2;
  absl::Duration interval = absl::Seconds(10);
};

// Of one start. Writes both files at each interval, in a thread of its own: a file system that
// stalls holds up nobody but the destructor, which writes them a last time.
class PaceRecorder {
 public:
  explicit PaceRecorder(PaceRecorderOptions options);
  ~PaceRecorder();
  PaceRecorder(const PaceRecorder&) = delete;
  PaceRecorder& operator=(const PaceRecorder&) = delete;

  // Call it several times a second. Never touches a file. The warnings to be given: a rank is
  // named, or no longer; each once, and of a start whose ranks take turns only the first ones.
  std::vector<std::string> Take(const liveness::RunHealth& newest);

  // The namings so far, for the ledger. It has other writers while ranks run, maybe on other nodes,
  // where appending is not atomic: write them down when the ranks are gone.
  std::vector<ledger::Straggler> Stragglers() const;

 private:
  void Write(bool is_running);

  const PaceRecorderOptions options_;
  MetricsStream metrics_;  // of the writing thread, like the next two
  std::optional<StepMetrics> last_;
  bool has_warned_ = false;

  mutable std::mutex mutex_;  // below
  liveness::StragglerFinder finder_;
  liveness::RunHealth newest_;
  std::map<int, int64_t> ticks_;
  std::map<int, absl::Time> last_ticks_;
  std::vector<ledger::Straggler> stragglers_;
  std::optional<PeriodicTask> writer_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
