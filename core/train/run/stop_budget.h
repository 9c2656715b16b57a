// How long a run needs from a stop signal to its end: what a scheduler must leave it (`sbatch
// --signal`, a grace period).

#pragma once

#include <vector>

namespace anyorder {

class StopBudget {
 public:
  // Wall time of a finished step, its stall for a save included.
  void AddStep(double ms) { step_seconds_.push_back(ms / 1000); }
  // From the first rank's copy to COMMITTED: copy, write, vote and commit, and saves before it in
  // the queue.
  void AddCommit(double seconds) { commit_seconds_.push_back(seconds); }

  // 1.5 x the 99th percentile of (step + commit), plus kEndSeconds. 0 before the first commit.
  double Seconds() const;

  // For what no checkpoint depends on: MPI, the service and the launcher ending.
  static constexpr double kEndSeconds = 5;

 private:
  std::vector<double> step_seconds_;
  std::vector<double> commit_seconds_;
};

}  // namespace anyorder
