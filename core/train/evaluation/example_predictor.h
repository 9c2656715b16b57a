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
#include "data/sampling/passage_windows.h"
#include "kernels/backend.h"

namespace anyorder {

// FailedPrecondition unless the run's objective has a task head.
absl::Status CheckIsClassifier(const RunConfig& config);

// A softmax over logits, of which there is one at least.
std::vector<double> ProbabilitiesOf(const std::vector<float>& logits);

// What is said of one example, or of one window of a passage (sampling/passage_windows.h).
struct ExamplePrediction {
  int64_t example = 0;
  // kSpans: the tokens of the passage that the window is.
  int64_t window_begin = 0;
  int64_t num_tokens = 0;
  TaskResult result;
};

class ExamplePredictor {
 public:
  // Computes `batch_size` examples or windows at once. Errors: those of CheckIsClassifier,
  // CheckTaskData and PassageWindows. `dataset` and `backend` are borrowed.
  static absl::StatusOr<std::unique_ptr<ExamplePredictor>> Create(const RunConfig& config,
                                                                  const data::Dataset& dataset,
                                                                  int64_t batch_size,
                                                                  kernels::Backend& backend);

  int64_t batch_size() const { return batch_size_; }
  // Examples, or windows of all of them.
  int64_t size() const { return examples_->num_examples(); }
  // What the head says of those from `begin` on, batch_size() of them or as many as are left, in
  // the dataset's order, the windows of an example one after the other. `weights` as in StepArgs.
  // DataLoss.
  absl::StatusOr<std::vector<ExamplePrediction>> Predict(int64_t begin, ConstTensorView weights);

 private:
  explicit ExamplePredictor(int64_t batch_size) : batch_size_(batch_size) {}

  const int64_t batch_size_;
  std::unique_ptr<data::PassageWindows> windows_;  // of kSpans
  const data::ExampleSource* examples_ = nullptr;  // they, or those of the dataset
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Transformer> network_;
};

}  // namespace anyorder
