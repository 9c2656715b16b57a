// How a Trainer learns what became of a step, and what it does with one that changed no weights
// (anomaly_policy.h).

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/train/health/rollback.h"
#include "core/train/trainer.h"

namespace anyorder {

// The device has decided by itself and is at the update meanwhile, so that what the host does here
// costs no time of the device's. All that follows, a save most of all, finds the step's outcome
// taken.
absl::Status Trainer::TakeOutcome(StepMetrics& metrics) {
  const dist::UpdateOutcome update = state_->optimizer().AwaitOutcome();
  metrics.grad_norm = update.grad_norm;
  metrics.skipped = update.skipped;
  const Anomaly anomaly = anomalies_.Judge(step_ + 1, metrics.loss, metrics.grad_norm);
  ANYORDER_CHECK(update.skipped == (anomalies_.ActionFor(anomaly) != AnomalyAction::kIgnore))
      << "step " << step_ + 1 << " of loss " << metrics.loss << " and gradient norm "
      << metrics.grad_norm << (update.skipped ? " was skipped" : " was not skipped");
  if (update.skipped) return RecordSkippedStep(anomaly, metrics);
  anomalies_.CountTrained(metrics.loss, metrics.grad_norm);
  return absl::OkStatus();
}

absl::Status Trainer::RecordSkippedStep(Anomaly anomaly, const StepMetrics& metrics) {
  ++skipped_steps_;
  anomalies_.CountSkipped();
  const int64_t step = step_ + 1;
  NonfiniteFindings findings;
  // Loss and norm are the same on all ranks, and so is this.
  if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm)) findings = FindNonfinite();
  const std::string what = DescribeStep(anomaly, metrics, findings.text);
  const AnomalyAction action = anomalies_.ActionFor(anomaly);
  if (reporter_ != nullptr) {
    ledger::Event event = ledger::Skipped{
        -1, step, findings.rank, config_.train.global_batch_size, NameOf(anomaly), findings.text};
    if (action == AnomalyAction::kRollback) {
      const SkippedSteps back = anomalies_.RollbackFrom(step);
      event = ledger::Rollback{-1, back.first, back.last, what};
    }
    // Before any checkpoint that counts the step as skipped.
    if (action != AnomalyAction::kStop)
      Note(reporter_->Incident(std::move(event), absl::StrCat(what, "; no update")));
  }
  if (action == AnomalyAction::kStop) {
    return absl::AbortedError(
        absl::StrCat(what, "; stopping (anomaly.on_", NameOf(anomaly),
                     "): no checkpoint contains it; to continue, launch with --set anomaly.on_",
                     NameOf(anomaly), "=skip"));
  }
  ANYORDER_RETURN_IF_ERROR(anomalies_.CheckProgress(step));
  if (action == AnomalyAction::kRollback) {
    return absl::UnavailableError(absl::StrCat(
        what, "; rolling back to the newest checkpoint (anomaly.on_", NameOf(anomaly), ")"));
  }
  return absl::OkStatus();
}

// Memory that is not finite would damage all later steps of its lane, so that such lanes restart
// empty.
NonfiniteFindings Trainer::FindNonfinite() {
  const dist::Range lanes = state_->lanes();
  for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
    if (state_->MemoryIsFinite(lane)) continue;
    finder_->AddMemoryLane(lane);
    state_->EmptyMemory(lane);
  }
  NonfiniteFindings findings = finder_->Gather(communicator_);
  for (const int64_t lane : findings.empty_lanes) lane_restarts_.Add(lane, step_ + 1);
  return findings;
}

std::string Trainer::DescribeStep(Anomaly anomaly, const StepMetrics& metrics,
                                  const std::string& where) const {
  std::string text = absl::StrCat("step ", step_ + 1);
  if (anomaly == Anomaly::kRolledBack) {
    absl::StrAppend(&text, " is skipped because of a rollback");
  } else if (anomaly == Anomaly::kSpike) {
    const AnomalyState& state = anomalies_.state();
    absl::StrAppend(&text, " is a spike: loss ", metrics.loss, " (mean ", state.loss.mean,
                    "), gradient norm ", metrics.grad_norm, " (mean ", state.grad_norm.mean, ")");
  } else {
    absl::StrAppend(&text, " has a loss or gradient that is not finite");
  }
  return where.empty() ? text : absl::StrCat(text, " (", where, ")");
}

}  // namespace anyorder
