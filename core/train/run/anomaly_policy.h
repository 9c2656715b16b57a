// What a run does about a step that is not finite or whose loss or gradient jumps. When it is
// judged: ../health/README.md. Everything here is computed from sums over all ranks, so that every
// rank decides alike. What the loss says is judged before the update, the norm's bound goes along
// with it (dist/sharded_optimizer.h), and once the norm is known Judge says the same again.
//
// Detector: mean m and mean absolute deviation d of the loss and of the gradient norm, over the
// steps that were trained on (plain means until `spike_window` of them, exponential ones from
// there). A step is a spike if either value is above m + spike_factor * max(d, m / 100). Steps that
// were held back change neither, so that a spike cannot hide the next one.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/fields.h"

namespace anyorder {

enum class AnomalyAction {
  kIgnore,    // train on it
  kSkip,      // no update; the next step goes on from the weights as they are
  kStop,      // end the run for good (93)
  kRollback,  // start again from the newest checkpoint and hold the step back when it comes again
};
constexpr auto SpellingsOf(AnomalyAction) {
  return std::array{"ignore", "skip", "stop", "rollback"};
}

// Section [anomaly]. No part of a run's identity: a run that stopped at a step may be told to skip
// it.
struct AnomalyConfig {
  AnomalyAction on_nonfinite = AnomalyAction::kSkip;  // never kIgnore
  AnomalyAction on_spike = AnomalyAction::kIgnore;
  double spike_factor = 10;
  int64_t spike_window = 100;
  int64_t rollback_steps = 1;
  int64_t max_skipped_in_a_row = 20;

  static void VisitFields(auto& self, auto& visit) {
    visit("on_nonfinite", self.on_nonfinite,
          "What to do when the loss or the gradient norm is not finite: skip the update, stop the "
          "run (exit status 93), or roll back to the newest checkpoint; \"ignore\" is refused.");
    visit(
        "on_spike", self.on_spike,
        "What to do when the loss or the gradient norm jumps: train on the step, skip the update, "
        "stop the run, or roll back to the newest checkpoint.");
    visit("spike_factor", self.spike_factor,
          "A spike is a value that exceeds the running mean by this many mean absolute deviations.",
          Above(0));
    visit("spike_window", self.spike_window,
          "Window of the running means; no spike is detected before this many trained steps.",
          AtLeast(2, "steps"));
    visit("rollback_steps", self.rollback_steps,
          "Updates skipped after a rollback: the step that caused it and those before it.",
          AtLeast(1, "steps"));
    visit("max_skipped_in_a_row", self.max_skipped_in_a_row,
          "The run stops (exit status 93) after this many consecutive skipped steps.",
          AtLeast(1, "steps"));
  }
  FaultList Validate() const;
};

enum class Anomaly {
  kNone,
  kNonfinite,
  kSpike,
  kRolledBack,  // held back because a rollback says so
};
// What ledger and metadata call them.
constexpr auto SpellingsOf(Anomaly) { return std::array{"", "nonfinite", "spike", "rolled_back"}; }

// A value's mean and mean absolute deviation.
struct RunningSpread {
  double mean = 0;
  double deviation = 0;
};

// All that the detector remembers; in every checkpoint, so that a resumed run decides as the
// uninterrupted one does.
struct AnomalyState {
  int64_t trained_steps = 0;  // that the means have seen
  RunningSpread loss;
  RunningSpread grad_norm;
  int64_t skipped_in_a_row = 0;
};

// Steps (first, last] that are computed but not trained on.
struct SkippedSteps {
  int64_t first = 0;
  int64_t last = 0;
};

class AnomalyPolicy {
 public:
  explicit AnomalyPolicy(const AnomalyConfig& config) : config_(config) {}

  // Where a resumed run goes on.
  void Restore(const AnomalyState& state) { state_ = state; }
  void ScheduleSkip(std::vector<SkippedSteps> steps) { scheduled_skips_ = std::move(steps); }
  const AnomalyState& state() const { return state_; }

  // Whether step `step` (counted from 1) of this mean loss is not to be trained on, whatever its
  // gradient norm.
  bool SkipsUpdate(int64_t step, double loss) const;
  // The largest unclipped gradient norm that is trained on. Infinity: any that is finite.
  double SkipAboveNorm() const;
  // What is wrong with a step, once all of it is known. Changes nothing. ActionFor it is kIgnore
  // exactly where SkipsUpdate says no and `grad_norm` is finite and not above SkipAboveNorm.
  Anomaly Judge(int64_t step, double loss, double grad_norm) const;
  // What the configuration says about it. kRolledBack is skipped.
  AnomalyAction ActionFor(Anomaly anomaly) const;

  // The step was trained on, or skipped: because of `anomaly`, and whether its loss or norm was not
  // finite.
  void CountTrained(double loss, double grad_norm);
  void CountSkipped(Anomaly anomaly, bool is_finite);

  // Aborted if so many steps in a row, the last of them `step`, were skipped that another one is no
  // use.
  absl::Status CheckProgress(int64_t step) const {
    if (state_.skipped_in_a_row < config_.max_skipped_in_a_row) return absl::OkStatus();
    return Diverged(step, ", as many as anomaly.max_skipped_in_a_row allows");
  }
  // Aborted if the run cannot be called finished with step `step`, its last: because that was not
  // finite, or because it and the one before were skipped, unless a rollback held them back.
  absl::Status CheckEnd(int64_t step) const;
  // What a rollback because of `step` holds back.
  SkippedSteps RollbackFrom(int64_t step) const;

 private:
  bool IsSkipScheduled(int64_t step) const;
  absl::Status Diverged(int64_t step, absl::string_view limit) const;
  bool KnowsSpikes() const { return state_.trained_steps >= config_.spike_window; }
  // The largest value that is no spike.
  double SpikeLimit(const RunningSpread& spread) const;

  const AnomalyConfig& config_;
  AnomalyState state_;
  Anomaly last_ = Anomaly::kNone;   // why the last step of this start was skipped
  int64_t unplanned_in_a_row_ = 0;  // skipped by this start, but for what a rollback held back
  std::vector<SkippedSteps> scheduled_skips_;
};

}  // namespace anyorder
