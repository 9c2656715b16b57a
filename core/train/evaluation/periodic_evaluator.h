// Held-out loss during training, on all ranks (section [eval]).
//
// Each evaluation reads the same text with the same random choices from the beginning, with a
// memory of its own; the training keeps its weights, memory, data position and random numbers.
// Lanes are shared out over the ranks and their sums added in lane order, so that any number of
// ranks gives the same digits.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/network/transformer.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset.h"
#include "dist/communicator.h"
#include "kernels/backend.h"

namespace anyorder {

// What section [eval] asks for.
EvaluatorOptions PeriodicEvaluatorOptions(const RunConfig& config);

// config.eval.shards, if it can be evaluated as configured. Errors: those of Dataset::Open;
// FailedPrecondition for text of another tokenizer than `training` has, too little of it, or
// examples whose classes have other numbers. Local.
absl::StatusOr<std::unique_ptr<data::Dataset>> OpenHeldOutText(const RunConfig& config,
                                                               const data::DatasetIndex& training);

class PeriodicEvaluator {
 public:
  struct Outcome {
    bool stop = false;  // the same on all ranks
    std::optional<HeldOutMetrics> metrics;
  };

  // Collective; errors are the same on all ranks. Null if config.eval.every is 0. `shared` is the
  // trainer's network, used between its steps. Borrows all but `training`.
  static absl::StatusOr<std::unique_ptr<PeriodicEvaluator>> Create(
      const RunConfig& config, const data::DatasetIndex& training, dist::Communicator& communicator,
      Transformer& shared, kernels::Backend& backend);

  // After step `step` (steps finished). After the last one always: it is what a run is judged by.
  bool IsDue(int64_t step) const {
    return !broken_ && (step % config_.eval.every == 0 || step == config_.train.steps);
  }

  // Collective. No metrics if a rank got a stop signal meanwhile: the evaluation is given up within
  // a batch. None either if the text cannot be read, which is said once; training does not depend
  // on it, so the run goes on without evaluations.
  Outcome Evaluate(ConstTensorView weights);

 private:
  PeriodicEvaluator(const RunConfig& config, dist::Communicator& communicator)
      : config_(config), communicator_(communicator) {}
  absl::Status OpenLocal(const data::DatasetIndex& training, Transformer& shared,
                         kernels::Backend& backend);
  SplitLosses GatherLosses();

  const RunConfig& config_;
  dist::Communicator& communicator_;
  std::unique_ptr<data::Dataset> text_;
  std::unique_ptr<Evaluator> evaluator_;
  bool broken_ = false;  // the same on all ranks
};

}  // namespace anyorder
