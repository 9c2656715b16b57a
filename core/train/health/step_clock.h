// Tells the times of a rank's steps apart, for the one who looks for ranks that keep the others
// waiting (core/liveness/straggler_finder.h).

#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

#include "core/liveness/rank_page.h"

namespace anyorder {

// Runs while a step does, and stands still in evaluations and saves. `communication`: what the
// collectives of this rank have taken until `now`, in all.
class StepClock {
 public:
  void Start(absl::Time now, absl::Duration communication) {
    started_ = now;
    communication_before_ = communication;
  }
  void Stop(absl::Time now, absl::Duration communication) {
    running_ += now - started_;
    communication_ += communication - communication_before_;
  }
  // The time since the step before was that of `step`. REQUIRES: the clock stands still.
  void EndStep(int64_t step, absl::Duration data_wait) {
    const absl::Duration compute = running_ - communication_ - data_wait;
    times_.steps = step;
    times_.compute_ns += std::max<int64_t>(0, absl::ToInt64Nanoseconds(compute));
    times_.data_wait_ns += absl::ToInt64Nanoseconds(data_wait);
    times_.communication_ns += absl::ToInt64Nanoseconds(communication_);
    running_ = communication_ = absl::ZeroDuration();
  }
  const liveness::RankTimes& times() const { return times_; }

 private:
  absl::Time started_;
  absl::Duration communication_before_;
  absl::Duration running_;
  absl::Duration communication_;
  liveness::RankTimes times_;
};

}  // namespace anyorder
