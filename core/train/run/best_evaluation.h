// Which evaluation of a run is the best by eval.metric, and whether the run has waited long enough
// for a better one (eval.patience).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"

namespace anyorder {

// Whether a figure of this name is the better the lower it is: "loss" and every "loss_NAME". All
// others (accuracies, F1, correlations) are the better the higher they are.
inline bool LowerIsBetter(absl::string_view figure) {
  return figure == "loss" || absl::StartsWith(figure, "loss_");
}

// The figure of that name, "loss" or one of `means`; NaN if the evaluation has none.
double FigureOf(const HeldOutMetrics& evaluation, absl::string_view name);

struct BestEvaluationState {
  std::string metric;  // that `value` is of: eval.metric; "": no evaluation yet
  int64_t step = -1;   // of the best evaluation, the first of equal ones; -1: none has a value
  double value = 0;
  int64_t num_later = 0;   // evaluations after it
  int64_t last_step = -1;  // of the last evaluation, whatever its value
};

// Equal on all ranks, since evaluations are; its state is in every checkpoint, so that a resumed
// run decides as the uninterrupted one does.
class BestEvaluation {
 public:
  explicit BestEvaluation(const EvalConfig& config)
      : metric_(config.metric), patience_(config.patience) {}

  // Where a resumed run goes on. Evaluations by another metric are forgotten.
  void Restore(const BestEvaluationState& state) {
    state_ = state.metric == metric_ ? state : BestEvaluationState();
  }
  // The evaluation after step `step`. One without a finite value is no improvement.
  void Add(int64_t step, const HeldOutMetrics& evaluation);

  // Whether as many evaluations as eval.patience were no improvement, one after the other.
  bool IsOver() const { return patience_ > 0 && state_.num_later >= patience_; }
  // "no higher task_accuracy than 0.8125 after step 40 in 3 evaluations"
  std::string Description() const;
  const BestEvaluationState& state() const { return state_; }

 private:
  std::string metric_;
  int64_t patience_;
  BestEvaluationState state_;
};

// An evaluation that metrics.jsonl tells of.
struct EvaluatedStep {
  int64_t step = 0;
  HeldOutMetrics figures;
};

// All that a run's metrics.jsonl has, in its order. Empty if there is no such file.
absl::StatusOr<std::vector<EvaluatedStep>> ReadEvaluations(const std::string& metrics_path);

// The best of them by eval.metric.
inline BestEvaluationState FindBest(const EvalConfig& config,
                                    const std::vector<EvaluatedStep>& evaluations) {
  BestEvaluation best(config);
  for (const EvaluatedStep& evaluation : evaluations) best.Add(evaluation.step, evaluation.figures);
  return best.state();
}

}  // namespace anyorder
