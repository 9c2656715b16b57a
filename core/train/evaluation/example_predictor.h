// What a fine-tuned network says of examples, labelled or not (core/network/heads/task_result.h).

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/tensor.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset.h"
#include "kernels/backend.h"

namespace anyorder {

// FailedPrecondition unless the run's objective has a task head.
absl::Status CheckIsClassifier(const RunConfig& config);

// A softmax over logits, of which there is one at least.
std::vector<double> ProbabilitiesOf(const std::vector<float>& logits);

class ExamplePredictor {
 public:
  // Computes `batch_size` examples at once. Errors: those of CheckIsClassifier and CheckTaskData.
  // `dataset` and `backend` are borrowed.
  static absl::StatusOr<std::unique_ptr<ExamplePredictor>> Create(const RunConfig& config,
                                                                  const data::Dataset& dataset,
                                                                  int64_t batch_size,
                                                                  kernels::Backend& backend);

  int64_t batch_size() const { return batch_size_; }
  // What the head says of the examples from `begin` on, batch_size() of them or as many as are
  // left, in the dataset's order. `weights` as in StepArgs. DataLoss.
  absl::StatusOr<std::vector<TaskResult>> Predict(int64_t begin, ConstTensorView weights);

 private:
  ExamplePredictor(const data::Dataset& dataset, int64_t batch_size)
      : dataset_(dataset), batch_size_(batch_size) {}

  const data::Dataset& dataset_;
  const int64_t batch_size_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Transformer> network_;
};

}  // namespace anyorder
