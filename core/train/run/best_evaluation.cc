#include "core/train/run/best_evaluation.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/status.h"

namespace anyorder {

double FigureOf(const HeldOutMetrics& evaluation, absl::string_view name) {
  if (name == "loss") return evaluation.loss;
  for (const NamedMean& mean : evaluation.means)
    if (mean.name == name) return mean.value;
  return std::numeric_limits<double>::quiet_NaN();
}

void BestEvaluation::Add(int64_t step, const HeldOutMetrics& evaluation) {
  state_.metric = metric_;
  state_.last_step = step;
  const double value = FigureOf(evaluation, metric_);
  const bool is_better =
      state_.step < 0 || (LowerIsBetter(metric_) ? value < state_.value : value > state_.value);
  if (std::isfinite(value) && is_better) {
    state_.step = step;
    state_.value = value;
    state_.num_later = 0;
  } else {
    ++state_.num_later;
  }
}

std::string BestEvaluation::Description() const {
  const std::string evaluations = absl::StrCat(" in ", Counted(state_.num_later, "evaluation"));
  if (state_.step < 0) return absl::StrCat("no value of ", metric_, evaluations);
  return absl::StrCat("no ", LowerIsBetter(metric_) ? "lower " : "higher ", metric_, " than ",
                      LossText(state_.value), " after step ", state_.step, evaluations);
}

absl::StatusOr<std::vector<EvaluatedStep>> ReadEvaluations(const std::string& metrics_path) {
  std::vector<EvaluatedStep> evaluations;
  const auto take = [&evaluations](StepMetrics metrics, absl::string_view) {
    if (metrics.held_out) evaluations.push_back({metrics.step, *std::move(metrics.held_out)});
  };
  RETURN_IF_ERROR(MetricsStream(metrics_path).Read([] {}, take));
  return evaluations;
}

}  // namespace anyorder
