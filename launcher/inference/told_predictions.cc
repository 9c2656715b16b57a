#include "launcher/inference/told_predictions.h"

#include <cmath>
#include <utility>

#include "core/base/file_system.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

// Gives the answers probabilities: a softmax of their scores and, of a head without a class for it,
// of that of none, as in write_predictions of BERT's and XLNet's run_squad.py. Windows have no
// distribution in common, and BERT's scores are logits.
void Normalize(bool has_answer_class, data::QuestionPrediction& merged) {
  if (merged.answers.empty()) return;
  const double best = merged.answers[0].log_probability;
  double sum = 0;
  for (const data::SpanAnswer& answer : merged.answers)
    sum += std::exp(answer.log_probability - best);
  if (!has_answer_class && !std::isnan(merged.null_score)) sum += std::exp(merged.null_score);
  for (data::SpanAnswer& answer : merged.answers) answer.log_probability -= best + std::log(sum);
}

}  // namespace

absl::StatusOr<TellPredictions> TellPredictions::Create(const std::string& directory,
                                                        const data::Dataset& dataset,
                                                        const TaskConfig& task,
                                                        const data::SpanAnswerOptions& answers) {
  TellPredictions tell(dataset, task, answers);
  if (!dataset.index().examples->origins) return tell;
  ASSIGN_OR_RETURN(tell.origins_, data::ExampleOrigins::Open(*FileSystem::Posix(), directory,
                                                             dataset.index(), *dataset.examples()));
  return tell;
}

absl::StatusOr<Prediction> TellPredictions::Given(int64_t example) {
  const data::StoredExamples& examples = *dataset_->examples();
  Prediction prediction;
  prediction.number = example + 1;
  if (task_.has_score()) {
    const float score = examples.ScoreOf(example);
    if (!std::isnan(score)) prediction.given_score = static_cast<double>(score);
  } else if (!task_.has_spans()) {
    prediction.classes = dataset_->index().examples->classes;
    if (!task_.has_tags()) prediction.given_label = examples.LabelOf(example);
  }
  if (origins_ == nullptr) return prediction;
  ASSIGN_OR_RETURN(const data::ExampleOrigin origin, origins_->Read(example));
  prediction.id = origin.id;
  if (!origin.answers) return prediction;
  std::vector<std::string>& given = prediction.given_answers.emplace();
  for (const data::OriginalAnswer& answer : *origin.answers) given.push_back(answer.text);
  return prediction;
}

absl::Status TellPredictions::TellTags(const std::vector<float>& logits, Prediction& prediction) {
  ASSIGN_OR_RETURN(const data::Example example,
                   dataset_->examples()->ReadExample(prediction.number - 1));
  const std::vector<int32_t> given = example.WordTags();
  const auto num_classes = std::ssize(prediction.classes);
  std::vector<std::vector<double>>& words = prediction.word_probabilities.emplace();
  for (auto first = logits.begin(); first != logits.end(); first += num_classes)
    words.push_back(ProbabilitiesOf({first, first + num_classes}));
  if (words.size() < given.size()) ++num_cut_texts_;
  words.resize(given.size(), std::vector<double>(prediction.classes.size(), 0.0));
  for (const int32_t tag : given) {
    if (example.label == 0)
      prediction.given_tags.push_back(prediction.classes[static_cast<size_t>(tag)]);
  }
  return absl::OkStatus();
}

absl::Status TellPredictions::Take(const ExamplePrediction& said, const Sink& sink) {
  if (!task_.has_spans()) {
    ASSIGN_OR_RETURN(Prediction prediction, Given(said.example));
    if (task_.has_tags()) {
      RETURN_IF_ERROR(TellTags(said.result.logits, prediction));
    } else if (task_.has_score()) {
      prediction.score = static_cast<double>(said.result.logits[0]);
    } else {
      prediction.probabilities = ProbabilitiesOf(said.result.logits);
    }
    return sink(std::move(prediction));
  }
  if (said.example != question_) RETURN_IF_ERROR(Finish(sink));
  question_ = said.example;
  windows_.push_back({.window_begin = said.window_begin,
                      .num_tokens = said.num_tokens,
                      .candidates = said.result.spans,
                      .answer_logit = said.result.answer_logit,
                      .null_log_probability = said.result.null_log_probability});
  return absl::OkStatus();
}

absl::Status TellPredictions::Finish(const Sink& sink) {
  if (windows_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Prediction prediction, Given(question_));
  ASSIGN_OR_RETURN(const data::ExampleOrigin origin, origins_->Read(question_));
  data::QuestionPrediction merged = data::MergeWindows(windows_, *origin.passage, answers_);
  windows_.clear();
  Normalize(task_.answer_class, merged);
  for (const data::SpanAnswer& answer : merged.answers) {
    prediction.answers.push_back(
        {answer.text, answer.characters.begin, answer.characters.end, answer.log_probability});
  }
  if (!std::isnan(merged.null_score)) prediction.null_score = merged.null_score;
  // Both kinds of null scores are above 0 where none is the likelier answer.
  const bool says_none = merged.answers.empty() || merged.null_score > 0;
  prediction.answer = says_none ? "" : merged.answers[0].text;
  return sink(std::move(prediction));
}

}  // namespace anyorder::launcher
