#include "core/train/run/anomaly_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder {

namespace {

// Below this part of the mean a deviation is noise of a value that hardly moves, and no measure for
// a jump.
constexpr double kLeastDeviation = 0.01;

void Follow(RunningSpread& spread, double value, double weight) {
  // The first value has no mean to deviate from.
  if (weight < 1) spread.deviation += weight * (std::abs(value - spread.mean) - spread.deviation);
  spread.mean += weight * (value - spread.mean);
}

}  // namespace

FaultList AnomalyConfig::Validate() const {
  FaultList faults;
  CheckBounds("anomaly", *this, faults);
  faults.Require(on_nonfinite != AnomalyAction::kIgnore,
                 "anomaly.on_nonfinite is \"ignore\" but must be skip, stop or rollback: an update "
                 "that is not finite destroys the weights");
  const bool rolls_back =
      on_nonfinite == AnomalyAction::kRollback || on_spike == AnomalyAction::kRollback;
  faults.Require(!rolls_back || rollback_steps < max_skipped_in_a_row,
                 absl::StrCat("anomaly.rollback_steps is ", rollback_steps,
                              " but must be less than anomaly.max_skipped_in_a_row = ",
                              max_skipped_in_a_row, ", or every rollback ends the run"));
  return faults;
}

double AnomalyPolicy::SpikeLimit(const RunningSpread& spread) const {
  const double deviation = std::max(spread.deviation, kLeastDeviation * std::abs(spread.mean));
  return spread.mean + config_.spike_factor * deviation;
}

bool AnomalyPolicy::IsSkipScheduled(int64_t step) const {
  return std::any_of(
      scheduled_skips_.begin(), scheduled_skips_.end(),
      [step](const SkippedSteps& steps) { return steps.first < step && step <= steps.last; });
}

bool AnomalyPolicy::SkipsUpdate(int64_t step, double loss) const {
  // Of a norm that nobody could object to.
  return ActionFor(Judge(step, loss, -std::numeric_limits<double>::max())) !=
         AnomalyAction::kIgnore;
}

double AnomalyPolicy::SkipAboveNorm() const {
  const bool is_bounded = KnowsSpikes() && config_.on_spike != AnomalyAction::kIgnore;
  return is_bounded ? SpikeLimit(state_.grad_norm) : std::numeric_limits<double>::infinity();
}

Anomaly AnomalyPolicy::Judge(int64_t step, double loss, double grad_norm) const {
  if (IsSkipScheduled(step)) return Anomaly::kRolledBack;
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) return Anomaly::kNonfinite;
  if (!KnowsSpikes()) return Anomaly::kNone;
  const bool jumps = loss > SpikeLimit(state_.loss) || grad_norm > SpikeLimit(state_.grad_norm);
  return jumps ? Anomaly::kSpike : Anomaly::kNone;
}

AnomalyAction AnomalyPolicy::ActionFor(Anomaly anomaly) const {
  switch (anomaly) {
    case Anomaly::kNonfinite: return config_.on_nonfinite;
    case Anomaly::kSpike: return config_.on_spike;
    case Anomaly::kRolledBack: return AnomalyAction::kSkip;
    case Anomaly::kNone: break;
  }
  return AnomalyAction::kIgnore;
}

void AnomalyPolicy::CountTrained(double loss, double grad_norm) {
  state_.skipped_in_a_row = 0;
  unplanned_in_a_row_ = 0;
  last_ = Anomaly::kNone;
  ++state_.trained_steps;
  const double weight =
      1 / static_cast<double>(std::min(state_.trained_steps, config_.spike_window));
  Follow(state_.loss, loss, weight);
  Follow(state_.grad_norm, grad_norm, weight);
}

void AnomalyPolicy::CountSkipped(Anomaly anomaly, bool is_finite) {
  ++state_.skipped_in_a_row;
  last_ = is_finite ? anomaly : Anomaly::kNonfinite;
  if (last_ != Anomaly::kRolledBack) ++unplanned_in_a_row_;
}

absl::Status AnomalyPolicy::CheckEnd(int64_t step) const {
  if (state_.skipped_in_a_row == 0 || last_ == Anomaly::kRolledBack) return absl::OkStatus();
  // One jump in the last step says nothing about the weights.
  const bool is_lost = last_ == Anomaly::kNonfinite || unplanned_in_a_row_ > 1;
  return is_lost ? Diverged(step, ", to the last") : absl::OkStatus();
}

absl::Status AnomalyPolicy::Diverged(int64_t step, absl::string_view limit) const {
  const int64_t first = step - state_.skipped_in_a_row + 1;
  return Aborted("the run diverged: ",
                 first == step ? absl::StrCat("step ", step, " was")
                               : absl::StrCat("steps ", first, " to ", step, " were"),
                 " skipped", limit,
                 "; it is not finished, and this state is not saved; the 'skipped' lines of "
                 "ledger.jsonl say why; to resume from the newest good checkpoint, or to begin "
                 "again where there is none, launch with a lower rate: --allow-schedule-change "
                 "--set optimizer.learning_rate=X");
}

SkippedSteps AnomalyPolicy::RollbackFrom(int64_t step) const {
  return {std::max<int64_t>(0, step - config_.rollback_steps), step};
}

}  // namespace anyorder
