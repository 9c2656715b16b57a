#include "core/train/evaluation/example_predictor.h"

#include <algorithm>
#include <cmath>

#include "core/base/status.h"
#include "core/train/evaluation/task_data.h"
#include "data/sampling/sampler.h"

namespace anyorder {

absl::Status CheckIsClassifier(const RunConfig& config) {
  if (config.model.task.has_head()) return absl::OkStatus();
  return FailedPrecondition("the run's objective ", config.objective.name,
                            " tells no classes apart; fine-tune its weights on labelled examples, "
                            "as configs/finetune/README.md says");
}

absl::StatusOr<std::unique_ptr<ExamplePredictor>> ExamplePredictor::Create(
    const RunConfig& config, const data::Dataset& dataset, int64_t batch_size,
    kernels::Backend& backend) {
  RETURN_IF_ERROR(CheckIsClassifier(config));
  // The language model of the text says nothing about its class.
  RunConfig alone = config;
  alone.model.task.lm_weight = 0;
  const ModelConfig& model = alone.model;
  std::unique_ptr<ExamplePredictor> predictor(new ExamplePredictor(batch_size));
  ASSIGN_OR_RETURN(predictor->objective_, MakeObjective(alone));
  RETURN_IF_ERROR(CheckTaskData(config, dataset, TaskLabels::kMayLack));
  predictor->examples_ = dataset.examples();
  if (model.task.has_spans()) {
    ASSIGN_OR_RETURN(
        predictor->windows_,
        data::PassageWindows::Create(*dataset.examples(), config.sampling, data::WindowUse::kAll));
    predictor->examples_ = predictor->windows_.get();
  }
  ASSIGN_OR_RETURN(
      predictor->network_,
      Transformer::Create(model, static_cast<int64_t>(dataset.index().vocab_size),
                          predictor->objective_->Shape(batch_size), backend, {.learns = false}));
  return predictor;
}

absl::StatusOr<std::vector<ExamplePrediction>> ExamplePredictor::Predict(int64_t begin,
                                                                         ConstTensorView weights) {
  const int64_t count = std::min(batch_size_, size() - begin);
  std::vector<ExamplePrediction> predictions(static_cast<size_t>(count));
  Batch batch(objective_->Shape(batch_size_));
  for (int64_t b = 0; b < batch_size_; ++b) {
    // Lanes that are left over read the last example again.
    const int64_t number = begin + std::min(b, count - 1);
    ASSIGN_OR_RETURN(TextSample sample, data::SampleOfExample(*examples_, number, 0));
    sample.lane = b;
    objective_->BuildLane(sample, b, batch);
    if (b >= count) continue;
    ExamplePrediction& prediction = predictions[static_cast<size_t>(b)];
    prediction.example = sample.example;
    if (windows_ == nullptr) continue;
    prediction.window_begin = sample.window_begin;
    prediction.num_tokens = std::ssize(sample.parts[1]);
  }
  network_->Run({.batch = &batch, .weights = weights, .training = false}, {});
  for (size_t b = 0; b < predictions.size(); ++b)
    predictions[b].result = network_->task_results()[b];
  return predictions;
}

std::vector<double> ProbabilitiesOf(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> values;
  double sum = 0;
  for (const float logit : logits) {
    values.push_back(std::exp(static_cast<double>(logit) - largest));
    sum += values.back();
  }
  for (double& value : values) value /= sum;
  return values;
}

}  // namespace anyorder
