// Which evaluation of a run was the best so far, and whether the run has waited long enough for a
// better one (eval.metric, eval.patience). Equal on all ranks, since evaluations are; its state is
// in every checkpoint, so that a resumed run decides as the uninterrupted one does.

#pragma once

#include <cstdint>
#include <string>

#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"

namespace anyorder {

struct BestEvaluationState {
  std::string metric;  // that `value` is of: eval.metric's name; "": no evaluation yet
  int64_t step = -1;   // of the best evaluation, the first of equal ones; -1: none has a value
  double value = 0;
  int64_t num_later = 0;   // evaluations after it
  int64_t last_step = -1;  // of the last evaluation, whatever its value
};

class BestEvaluation {
 public:
  // Borrows `config`.
  explicit BestEvaluation(const EvalConfig& config) : config_(config) {}

  // Where a resumed run goes on. Evaluations by another metric are forgotten.
  void Restore(const BestEvaluationState& state);
  // The evaluation after step `step`. One without a value (NaN, or no such figure) is no
  // improvement.
  void Add(int64_t step, const HeldOutMetrics& evaluation);

  // Whether as many evaluations as eval.patience were no improvement, one after the other.
  bool IsOver() const { return config_.patience > 0 && state_.num_later >= config_.patience; }
  // "no better accuracy than 0.8125 after step 40 in 3 evaluations"
  std::string Description() const;
  const BestEvaluationState& state() const { return state_; }

 private:
  const EvalConfig& config_;
  BestEvaluationState state_;
};

}  // namespace anyorder
