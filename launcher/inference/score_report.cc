#include "launcher/inference/score_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/counted.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/unicode.h"
#include "core/metrics/label_scores.h"
#include "core/metrics/ranking.h"
#include "core/metrics/squad.h"
#include "core/metrics/tagging.h"
#include "data/prep/examples/official_tasks.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kDepth = 20;      // of NDCG and ERR
constexpr int32_t kMostGrade = 4;  // of gdeval
constexpr double kAsItIs = 1;
using Predictions = std::vector<const Prediction*>;

absl::Status WrongKind(const Gold& gold, const Prediction& prediction, const char* wanted) {
  return DataLoss("example '", ExampleKey(prediction.id, prediction.number), "' of '", gold.path,
                  "' has a prediction without ", wanted);
}

absl::Status CheckLabelled(const Gold& gold) {
  for (size_t i = 0; i < gold.examples.size(); ++i) {
    const ExampleLabel& example = gold.examples[i];
    if (example.is_known()) continue;
    return FailedPrecondition(
        example.where.empty() ? absl::StrCat("'", gold.path, "', example ", i + 1) : example.where,
        ": there is no label to score by; test data of benchmarks have none: send their "
        "predictions (--write-submission)");
  }
  return absl::OkStatus();
}

// Labels as numbers of classes.
struct Labels {
  std::vector<std::string> classes;
  std::vector<int32_t> gold;
  std::vector<int32_t> predicted;

  int32_t NumberOf(const std::string& name) const {
    const auto found = std::find(classes.begin(), classes.end(), name);
    return found == classes.end() ? -1 : static_cast<int32_t>(found - classes.begin());
  }
};

absl::StatusOr<Labels> NumberLabels(const Gold& gold, const Predictions& predictions) {
  Labels labels{.classes = gold.classes};
  const bool is_known = !labels.classes.empty();
  std::map<std::string, int32_t> numbers;
  for (const std::string& name : labels.classes)
    numbers.emplace(name, static_cast<int32_t>(numbers.size()));
  // A class that the task does not have gets a number where no file says which ones it has.
  const auto number = [&](const std::string& name) {
    // Names of runs of older versions may have blanks around them.
    const std::string called(numbers.count(name) > 0 ? name : StripSpace(name));
    const auto [known, is_new] = numbers.emplace(called, static_cast<int32_t>(numbers.size()));
    if (is_new) labels.classes.push_back(called);
    return known->second;
  };
  for (size_t i = 0; i < predictions.size(); ++i) {
    const Prediction& one = *predictions[i];
    if (one.probabilities.empty()) return WrongKind(gold, one, "probabilities");
    if (gold.examples[i].is_disputed) continue;
    if (is_known && numbers.count(one.label()) == 0) {
      return DataLoss("example '", ExampleKey(one.id, one.number), "' has the predicted class '",
                      one.label(), "', which is none of ", absl::StrJoin(gold.classes, ", "));
    }
    labels.gold.push_back(number(*gold.examples[i].label));
    labels.predicted.push_back(number(one.label()));
  }
  return labels;
}

// Accuracy of the examples whose identifier begins with `part`, if there are any.
void AddAccuracyOf(const std::string& part, const Gold& gold, const Labels& labels,
                   std::vector<Metric>& metrics) {
  std::vector<int32_t> given;
  std::vector<int32_t> predicted;
  for (size_t i = 0; i < labels.gold.size(); ++i) {
    if (!absl::StartsWith(gold.examples[i].id, part + "/")) continue;
    given.push_back(labels.gold[i]);
    predicted.push_back(labels.predicted[i]);
  }
  if (!given.empty()) metrics.push_back({"accuracy_" + part, metrics::Accuracy(given, predicted)});
}

std::vector<Metric> LabelMetrics(const Gold& gold, const Labels& labels) {
  const data::OfficialTask& task = data::OfficialTaskOrNone(gold.task);
  const std::string file = PlaceName(gold.path);
  const Metric accuracy = {"accuracy", metrics::Accuracy(labels.gold, labels.predicted)};
  const auto matthews = [&]() -> Metric {
    return {"matthews_correlation", metrics::MatthewsCorrelation(labels.gold, labels.predicted)};
  };
  if (gold.task.empty() && gold.kind != ExampleTask::kMultipleChoice)
    return {accuracy, {"macro_f1", metrics::MacroF1(labels.gold, labels.predicted)}, matthews()};
  if (task.has_matched_files && absl::StrContains(file, "matched")) {
    return {{absl::StrContains(file, "mismatched") ? "accuracy_mismatched" : "accuracy_matched",
             accuracy.value}};
  }
  std::vector<Metric> all = {accuracy};
  switch (task.measures) {
    case data::LabelMeasures::kAccuracy: break;
    case data::LabelMeasures::kMatthewsAndAccuracy: return {matthews(), accuracy};
    case data::LabelMeasures::kErrorRate: return {{"error_rate", 1 - accuracy.value}, accuracy};
    case data::LabelMeasures::kAccuracyAndF1:
      all.push_back({"f1", metrics::BinaryF1(labels.gold, labels.predicted, labels.NumberOf("1"))});
  }
  for (const std::string& part : task.id_parts) AddAccuracyOf(part, gold, labels, all);
  return all;
}

absl::StatusOr<std::vector<Metric>> ScoreMetrics(const Gold& gold, const Predictions& predictions) {
  std::vector<double> given;
  std::vector<double> predicted;
  for (size_t i = 0; i < predictions.size(); ++i) {
    if (!predictions[i]->score) return WrongKind(gold, *predictions[i], "a score");
    const ExampleLabel& example = gold.examples[i];
    double& score = given.emplace_back(example.score.value_or(0));
    // Own examples may be classes or scores: predictions tell.
    if (!example.score && !(absl::SimpleAtod(*example.label, &score) && std::isfinite(score))) {
      return DataLoss(example.where, ": the label '", *example.label,
                      "' is no number, but predictions are scores");
    }
    predicted.push_back(*predictions[i]->score);
  }
  return std::vector<Metric>{{"pearson", metrics::PearsonCorrelation(predicted, given)},
                             {"spearman", metrics::SpearmanCorrelation(predicted, given)}};
}

// The measures of conlleval where the tags name entities; and the share of right tags.
absl::StatusOr<ScoreReport> ScoreTags(const Gold& gold, const Predictions& predictions) {
  ScoreReport report{.gold = gold.path, .counted = "words"};
  metrics::EntityCounts entities;
  size_t right = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const Prediction& one = *predictions[i];
    const std::vector<std::string>& given = gold.examples[i].tags;
    if (!one.word_probabilities) return WrongKind(gold, one, "tags of words");
    if (one.word_probabilities->size() != given.size()) {
      return DataLoss("example '", ExampleKey(one.id, one.number), "' has predictions of ",
                      one.word_probabilities->size(), " words, but '", gold.path, "' has ",
                      given.size(), "; predict the same file");
    }
    const std::vector<std::string> tags = one.tags();
    for (size_t word = 0; word < tags.size(); ++word) right += tags[word] == given[word] ? 1 : 0;
    report.count += tags.size();
    entities.Add(metrics::CountEntities(tags, given));
  }
  if (metrics::AreEntityTags(predictions[0]->classes)) {
    report.metrics = {
        {"precision", entities.precision()}, {"recall", entities.recall()}, {"f1", entities.f1()}};
  }
  report.metrics.push_back(
      {"accuracy", static_cast<double>(right) / static_cast<double>(report.count)});
  return report;
}

void AddMeans(const std::string& name, const metrics::SquadMeans& means, std::vector<Metric>& all) {
  all.push_back({name + "exact", means.exact, kAsItIs});
  all.push_back({name + "f1", means.f1, kAsItIs});
  all.push_back({name + "total", static_cast<double>(means.total), kAsItIs});
}

// The names of evaluate-v2.0.py.
absl::StatusOr<std::vector<Metric>> SquadMetrics(const Gold& gold, const Predictions& predictions) {
  std::vector<metrics::SquadQuestion> said;
  std::vector<metrics::SquadQuestion> best;  // the best answers, whatever their null scores are
  for (size_t i = 0; i < predictions.size(); ++i) {
    const Prediction& one = *predictions[i];
    if (!one.answer) return WrongKind(gold, one, "an answer");
    said.push_back({*gold.examples[i].answers, *one.answer, one.null_score.value_or(0)});
    best.push_back(said.back());
    if (!one.answers.empty()) best.back().prediction = one.answers[0].text;
  }
  const auto version = gold.is_squad_2 ? metrics::SquadVersion::k2_0 : metrics::SquadVersion::k1_1;
  const metrics::SquadReport report = metrics::ScoreSquad(said, version, std::nullopt);
  std::vector<Metric> all;
  AddMeans("", report.all, all);
  if (!gold.is_squad_2) return all;
  if (report.has_answer) AddMeans("HasAns_", *report.has_answer, all);
  if (report.no_answer) AddMeans("NoAns_", *report.no_answer, all);
  if (!predictions[0]->null_score) return all;
  const metrics::SquadReport free = metrics::ScoreSquad(best, version, std::nullopt);
  all.push_back({"best_exact", free.best_exact.best, kAsItIs});
  all.push_back({"best_exact_thresh", free.best_exact.threshold, kAsItIs});
  all.push_back({"best_f1", free.best_f1.best, kAsItIs});
  all.push_back({"best_f1_thresh", free.best_f1.threshold, kAsItIs});
  return all;
}

struct JudgedTopic {
  std::map<std::string, int32_t> grades;  // by document
  std::vector<int32_t> judged;
  size_t num_relevant = 0;
  std::vector<double> scores;  // of the run, as `documents`
  std::vector<std::string> documents;

  std::vector<int32_t> RankedGrades() const {
    std::vector<int32_t> ranked;
    for (const size_t i : metrics::RankingOrder(scores, documents)) {
      const auto grade = grades.find(documents[i]);
      ranked.push_back(grade == grades.end() ? 0 : grade->second);
    }
    return ranked;
  }
};

// By topic, in the order of their names.
absl::StatusOr<std::map<std::string, JudgedTopic>> JudgedTopics(
    const std::string& path, const std::vector<data::TrecJudgment>& judgments) {
  std::map<std::string, JudgedTopic> topics;
  for (const data::TrecJudgment& judgment : judgments) {
    if (judgment.subtopic != "0") {
      return DataLoss(path, ": topic ", judgment.topic, " has judgments of the subtopic '",
                      judgment.subtopic, "'; name the judgments of the ad hoc task, which have 0");
    }
    if (judgment.relevance > kMostGrade) {
      return DataLoss(path, ": document ", judgment.document, " of topic ", judgment.topic,
                      " has the grade ", judgment.relevance, ", above gdeval's ", kMostGrade);
    }
    JudgedTopic& topic = topics[judgment.topic];
    topic.grades.emplace(judgment.document, judgment.relevance);
    topic.judged.push_back(judgment.relevance);
    topic.num_relevant += judgment.relevance > 0;
  }
  return topics;
}

}  // namespace

absl::StatusOr<ScoreReport> ScorePredictions(const Gold& gold, const Predictions& predictions) {
  ScoreReport report{.gold = gold.path, .count = gold.examples.size()};
  RETURN_IF_ERROR(CheckLabelled(gold));
  if (gold.kind == ExampleTask::kSpans) {
    ASSIGN_OR_RETURN(report.metrics, SquadMetrics(gold, predictions));
    return report;
  }
  if (gold.kind == ExampleTask::kTokens) return ScoreTags(gold, predictions);
  const bool may_be_scores = gold.kind != ExampleTask::kMultipleChoice && gold.classes.empty();
  if (gold.label_kind() == LabelKind::kScore || (may_be_scores && predictions[0]->score)) {
    ASSIGN_OR_RETURN(report.metrics, ScoreMetrics(gold, predictions));
    return report;
  }
  ASSIGN_OR_RETURN(const Labels labels, NumberLabels(gold, predictions));
  report.count = labels.gold.size();
  report.metrics = LabelMetrics(gold, labels);
  return report;
}

absl::StatusOr<ScoreReport> ScoreRun(const std::string& path,
                                     const std::vector<data::TrecJudgment>& judgments,
                                     const std::vector<data::TrecRunEntry>& run) {
  ASSIGN_OR_RETURN(auto topics, JudgedTopics(path, judgments));
  for (const data::TrecRunEntry& entry : run) {
    const auto topic = topics.find(entry.topic);
    if (topic == topics.end()) continue;  // that nobody judged
    topic->second.scores.push_back(entry.score);
    topic->second.documents.push_back(entry.document);
  }
  ScoreReport report{.gold = path, .counted = "topics"};
  std::vector<std::string> missing;
  double sums[4] = {};
  for (const auto& [name, topic] : topics) {
    if (topic.num_relevant == 0) continue;
    if (topic.documents.empty()) missing.push_back(name);
    ++report.count;
    const std::vector<int32_t> ranked = topic.RankedGrades();
    sums[0] += metrics::Ndcg(ranked, topic.judged, kDepth, metrics::NdcgGain::kExponential);
    sums[1] += metrics::ExpectedReciprocalRank(ranked, kDepth, kMostGrade);
    sums[2] += metrics::Ndcg(ranked, topic.judged, kDepth, metrics::NdcgGain::kLinear);
    sums[3] += metrics::AveragePrecision(ranked, topic.num_relevant);
  }
  if (!missing.empty()) {
    return DataLoss("the run has no document of ", missing.size(), " topics of '", path,
                    "': ", FirstNames(missing));
  }
  if (report.count == 0) return DataLoss(path, ": no topic has a relevant document");
  const char* names[] = {"ndcg@20", "err@20", "ndcg_cut_20", "map"};
  for (size_t i = 0; i < std::size(names); ++i)
    report.metrics.push_back({names[i], sums[i] / static_cast<double>(report.count), kAsItIs});
  return report;
}

nlohmann::ordered_json ScoreJson(const ScoreReport& report) {
  nlohmann::ordered_json json = {{"gold", report.gold}, {report.counted, report.count}};
  for (const Metric& metric : report.metrics) json["metrics"][metric.name] = metric.value;
  return json;
}

void PrintScores(const ScoreReport& report) {
  absl::PrintF("%-20s  %s\n%-20s  %d\n", "gold", report.gold, report.counted, report.count);
  for (const Metric& metric : report.metrics) {
    if (std::isnan(metric.value)) {
      absl::PrintF("%-20s  undefined: one side does not vary\n", metric.name);
    } else {
      absl::PrintF("%-20s  %.4f%s\n", metric.name, metric.shown * metric.value,
                   metric.shown == kAsItIs ? "" : " %");
    }
  }
}

}  // namespace anyorder::launcher
