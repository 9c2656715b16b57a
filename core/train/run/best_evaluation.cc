#include "core/train/run/best_evaluation.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace anyorder {

namespace {

double ValueOf(EvalMetric metric, const HeldOutMetrics& evaluation) {
  if (metric == EvalMetric::kLoss) return evaluation.loss;
  for (const NamedMean& mean : evaluation.means)
    if (IsAccuracy(mean.name)) return mean.value;
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void BestEvaluation::Restore(const BestEvaluationState& state) {
  state_ = state.metric == EnumName(config_.metric) ? state : BestEvaluationState();
}

void BestEvaluation::Add(int64_t step, const HeldOutMetrics& evaluation) {
  state_.metric = EnumName(config_.metric);
  state_.last_step = step;
  const double value = ValueOf(config_.metric, evaluation);
  const bool is_better =
      config_.metric == EvalMetric::kLoss ? value < state_.value : value > state_.value;
  if (is_better || (state_.step < 0 && !std::isnan(value))) {
    state_.step = step;
    state_.value = value;
    state_.num_later = 0;
  } else {
    ++state_.num_later;
  }
}

std::string BestEvaluation::Description() const {
  return absl::StrCat(
      "no better ", state_.metric,
      state_.step < 0 ? ""
                      : absl::StrCat(" than ", LossText(state_.value), " after step ", state_.step),
      " in ", state_.num_later, state_.num_later == 1 ? " evaluation" : " evaluations");
}

}  // namespace anyorder
