// How fast each rank of a start is, and who keeps the others waiting, for people and for
// monitoring: run-dir/metrics.prom and run-dir/.launch/pace/ATTEMPT.json (core/train/FORMAT.md).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/liveness/node_report.h"
#include "core/liveness/straggler_finder.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"

namespace anyorder::launcher {

// The ranks of a start whose own time is the most, the most first.
struct AttemptPace {
  int64_t attempt = 0;
  int64_t ranks = 0;  // of the start
  std::vector<liveness::RankPace> slowest;
};

// What a start left of it. NotFound if nothing; DataLoss for another file.
absl::StatusOr<AttemptPace> ReadAttemptPace(const std::string& run_dir, int64_t attempt);

// The members of a liveness::RankPace as JSON has them.
void VisitPace(auto& pace, auto&& visit) {
  visit("rank", pace.rank);
  visit("node", pace.node);
  visit("compute_ms", pace.compute_ms);
  visit("data_wait_ms", pace.data_wait_ms);
  visit("communication_ms", pace.communication_ms);
  visit("ratio", pace.ratio);
  visit("straggler", pace.is_straggler);
}

// "rank 3 on n2: compute 130, data wait 5, communication 20 ms a step; own time 1.29 times the
// median, a straggler"
std::string DescribePace(const liveness::RankPace& rank);

// What metrics.prom says.
struct RunFacts {
  std::string run_id;
  int64_t attempt = 0;
  int64_t ranks = 0;  // of the start
  bool is_running = false;
  std::optional<StepMetrics> last;  // line of the metrics
  std::optional<int64_t> committed_step;
  absl::Time committed = absl::UnixEpoch();  // at that time
  std::vector<liveness::NodeReport> health;  // the newest of each node that has reported
  std::vector<liveness::RankPace> paces;
};

// In the text format of Prometheus.
std::string PrometheusText(const RunFacts& facts);

struct PaceRecorderOptions {
  std::string run_dir;
  std::string run_id;
  int64_t attempt = 0;
  int64_t ranks = 1;
  double straggler_ratio = 1.2;  // 0: nobody is named
  absl::Duration interval = absl::Seconds(10);
  absl::Duration end_limit = absl::Seconds(5);
};

// The pace of one start. Writes both files at each interval and when a rank is named, in a thread
// of its own: a file system that stalls holds nobody up for longer than `end_limit`. Thread-safe.
class PaceRecorder {
 public:
  explicit PaceRecorder(PaceRecorderOptions options);
  // Writes nothing more: the run directory may be another launcher's.
  ~PaceRecorder();
  PaceRecorder(const PaceRecorder&) = delete;
  PaceRecorder& operator=(const PaceRecorder&) = delete;

  // Call it several times a second. Never touches a file. The warnings to be given: a rank is
  // named, or no longer; each once, and of a start whose ranks take turns only the first ones.
  std::vector<std::string> Take(const std::vector<liveness::NodeReport>& newest);

  // Writes the files a last time: the start is over. Take nothing afterwards.
  void Finish() { End(/*writes_last=*/true); }

  // The namings so far, for the ledger. It has other writers while ranks run, maybe on other nodes,
  // where appending is not atomic: write them down when the ranks are gone.
  std::vector<ledger::Straggler> Stragglers() const;

 private:
  struct State;  // the thread's, too: a call that does not return may keep it

  void End(bool writes_last);

  const std::shared_ptr<State> state_;
  std::thread writer_;
};

}  // namespace anyorder::launcher
