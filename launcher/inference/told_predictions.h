// From what a network says of examples, or of windows of passages (core/train/evaluation), to the
// predictions that are written: names of classes, identifiers, and answers in the words of the
// passage.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/config/task_config.h"
#include "core/train/evaluation/example_predictor.h"
#include "data/dataset/dataset.h"
#include "data/dataset/example_origins.h"
#include "data/sampling/span_answers.h"
#include "launcher/inference/predictions.h"

namespace anyorder::launcher {

class TellPredictions {
 public:
  using Sink = std::function<absl::Status(Prediction)>;

  // Predictions of the examples of the dataset in `directory`; `dataset` must outlive it.
  // `answers`: which spans count. DataLoss.
  static absl::StatusOr<TellPredictions> Create(const std::string& directory,
                                                const data::Dataset& dataset,
                                                const TaskConfig& task,
                                                const data::SpanAnswerOptions& answers);

  // The predictor's predictions in their order. `sink` gets one an example, of questions when their
  // last window is there; Finish tells the last one. Errors: those of `sink`; DataLoss.
  absl::Status Take(const ExamplePrediction& said, const Sink& sink);
  absl::Status Finish(const Sink& sink);

  // kTokens: texts that do not fit in a sequence. Their last words have the first class as their
  // tag ("O" comes first where there is one).
  int64_t num_cut_texts() const { return num_cut_texts_; }

 private:
  TellPredictions(const data::Dataset& dataset, const TaskConfig& task,
                  const data::SpanAnswerOptions& answers)
      : dataset_(&dataset), task_(task), answers_(answers) {}
  // What the dataset says of an example.
  absl::StatusOr<Prediction> Given(int64_t example);
  // kTokens: what the logits say of the words of that example. DataLoss.
  absl::Status TellTags(const std::vector<float>& logits, Prediction& prediction);

  const data::Dataset* dataset_;
  TaskConfig task_;
  data::SpanAnswerOptions answers_;
  std::unique_ptr<data::ExampleOrigins> origins_;  // null: the dataset has none
  // kSpans: the windows of the question that is under way.
  int64_t question_ = -1;
  std::vector<data::WindowPrediction> windows_;
  int64_t num_cut_texts_ = 0;
};

}  // namespace anyorder::launcher
