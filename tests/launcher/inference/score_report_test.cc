// Which metrics a task is reported with; their values are core/metrics' business.

#include "launcher/inference/score_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Gold Labelled(const std::string& task, const std::string& path, std::vector<std::string> classes,
              const std::vector<std::string>& labels) {
  Gold gold{.path = path, .task = task, .classes = std::move(classes)};
  for (const std::string& label : labels) gold.examples.push_back({.where = "w", .label = label});
  return gold;
}

std::vector<Prediction> Saying(const std::vector<std::string>& labels) {
  std::vector<Prediction> all;
  for (const std::string& label : labels) {
    all.push_back({.number = static_cast<int64_t>(all.size()) + 1,
                   .classes = {label},
                   .probabilities = {1.0}});
  }
  return all;
}

absl::StatusOr<ScoreReport> Score(const Gold& gold, const std::vector<Prediction>& predictions) {
  const auto matched = MatchPredictions(gold, predictions);
  return matched.ok() ? ScorePredictions(gold, *matched) : matched.status();
}

std::map<std::string, double> Metrics(const Gold& gold,
                                      const std::vector<Prediction>& predictions) {
  std::map<std::string, double> metrics;
  const ScoreReport report = Score(gold, predictions).value();
  for (const Metric& metric : report.metrics) metrics[metric.name] = metric.value;
  return metrics;
}

std::string Refusal(const Gold& gold, const std::vector<Prediction>& predictions) {
  return std::string(Score(gold, predictions).status().message());
}

using MetricValues = std::map<std::string, double>;

TEST(ScoreReportTest, EachTaskHasItsMetrics) {
  const std::vector<std::string> given = {"0", "1", "1", "1"};
  const std::vector<Prediction> said = Saying({"0", "1", "1", "0"});
  const auto of = [&](const std::string& task, const std::string& path) {
    return Metrics(Labelled(task, path, {"0", "1"}, given), said);
  };
  EXPECT_EQ(of("sst2", "dev.tsv"), (MetricValues{{"accuracy", 0.75}}));
  EXPECT_EQ(of("mrpc", "dev.tsv"), (MetricValues{{"accuracy", 0.75}, {"f1", 0.8}}));
  EXPECT_EQ(of("yelp2", "test.csv"), (MetricValues{{"error_rate", 0.25}, {"accuracy", 0.75}}));
  EXPECT_EQ(of("mnli", "dev_matched.tsv"), (MetricValues{{"accuracy_matched", 0.75}}));
  EXPECT_EQ(of("mnli", "dev_mismatched.tsv"), (MetricValues{{"accuracy_mismatched", 0.75}}));
  EXPECT_EQ(of("cola", "dev.tsv").count("matthews_correlation"), 1u);
  EXPECT_EQ(of("", "own.jsonl").size(), 3u);
}

TEST(ScoreReportTest, RaceIsReportedBySchool) {
  Gold gold = Labelled("race", "test", {}, {"0", "1", "3"});
  gold.kind = ExampleTask::kMultipleChoice;
  const char* ids[] = {"high/1.txt#0", "middle/2.txt#0", "high/1.txt#1"};
  std::vector<Prediction> said;
  for (size_t i = 0; i < 3; ++i) {
    gold.examples[i].id = ids[i];
    said.insert(said.begin(), {.id = ids[i], .probabilities = {0.7, 0.1, 0.1, 0.1}});
  }
  EXPECT_EQ(Metrics(gold, said),
            (MetricValues{{"accuracy", 1.0 / 3}, {"accuracy_middle", 0}, {"accuracy_high", 0.5}}));
}

// One of two entities is found, and nothing else; three of four words are right.
TEST(ScoreReportTest, TagsAreScoredByEntityAndByWord) {
  Gold gold{.path = "g", .kind = ExampleTask::kTokens, .classes = {"O", "B-X", "I-X"}};
  gold.examples = {{.where = "w", .tags = {"B-X", "I-X", "O"}}, {.where = "w", .tags = {"B-X"}}};
  std::vector<Prediction> said = {
      {.number = 1,
       .classes = gold.classes,
       .word_probabilities = {{{0, 1, 0}, {0.25, 0.25, 0.5}, {0.5, 0.5, 0}}}},
      {.number = 2, .classes = gold.classes, .word_probabilities = {{{1, 0, 0}}}}};
  std::map<std::string, double> metrics = Metrics(gold, said);
  EXPECT_EQ(metrics["precision"], 1.0);
  EXPECT_EQ(metrics["recall"], 0.5);
  EXPECT_NEAR(metrics["f1"], 2.0 / 3, 1e-15);
  EXPECT_EQ(metrics["accuracy"], 0.75);
  EXPECT_EQ(Score(gold, said)->count, 4u);
  EXPECT_EQ(Score(gold, said)->counted, "words");
  said[1].word_probabilities->push_back({1, 0, 0});
  EXPECT_THAT(Refusal(gold, said), HasSubstr("has predictions of 2 words, but 'g' has 1"));
  gold.examples[1].tags.clear();
  EXPECT_THAT(Refusal(gold, said), HasSubstr("there is no label to score by"));
  // Tags that name no entities.
  gold.classes = {"noun", "verb"};
  gold.examples = {{.where = "w", .tags = {"noun", "verb"}}};
  metrics = Metrics(
      gold,
      {{.number = 1, .classes = gold.classes, .word_probabilities = {{{0.5, 0.5}, {0.75, 0.25}}}}});
  EXPECT_EQ(metrics.count("f1"), 0u);
  EXPECT_EQ(metrics["accuracy"], 0.5);
}

TEST(ScoreReportTest, ScoresAreCorrelated) {
  Gold gold{.path = "dev.tsv", .task = "stsb"};
  std::vector<Prediction> said;
  for (const double score : {1.0, 2.0, 4.0}) {
    gold.examples.push_back({.score = score});
    said.push_back({.number = static_cast<int64_t>(said.size()) + 1, .score = score * 3 - 1});
  }
  EXPECT_EQ(gold.label_kind(), LabelKind::kScore);
  EXPECT_EQ(Metrics(gold, said), (MetricValues{{"pearson", 1}, {"spearman", 1}}));
  for (Prediction& one : said) one.score = 2.0;
  const auto flat = Score(gold, said);
  ASSERT_TRUE(flat.ok());
  EXPECT_EQ(ScoreJson(*flat)["metrics"].dump(), "{\"pearson\":null,\"spearman\":null}");
  EXPECT_THAT(Refusal(gold, Saying({"1", "2", "3"})), HasSubstr("without a score"));
}

// Own examples may be either: predictions tell.
TEST(ScoreReportTest, LabelsThatAreNumbersAreScoresWherePredictionsAre) {
  Gold gold = Labelled("", "own.csv", {}, {"1", "2.5", "4e0"});
  std::vector<Prediction> said;
  for (const double score : {3.0, 6.0, 9.0})
    said.push_back({.number = static_cast<int64_t>(said.size()) + 1, .score = score});
  EXPECT_EQ(Metrics(gold, said), (MetricValues{{"pearson", 1}, {"spearman", 1}}));
  EXPECT_EQ(Metrics(gold, Saying({"1", "2.5", "1"})).count("macro_f1"), 1u);
  gold.examples[1].label = "good";
  EXPECT_THAT(Refusal(gold, said), HasSubstr("w: the label 'good' is no number"));
}

// Class names of older runs may have them.
TEST(ScoreReportTest, BlanksAroundNamesTellNoClassesApart) {
  EXPECT_EQ(
      Metrics(Labelled("", "own.csv", {}, {"yes", "no"}), Saying({" yes", "no"})).at("accuracy"),
      1);
}

TEST(ScoreReportTest, SquadHasTheNamesOfItsOwnEvaluation) {
  Gold gold{.path = "dev.json", .task = "squad2", .kind = ExampleTask::kSpans, .is_squad_2 = true};
  using Answers = std::vector<std::string>;
  gold.examples = {{.id = "a", .answers = Answers{"red"}}, {.id = "b", .answers = Answers()}};
  const std::vector<Prediction> said = {
      {.id = "b", .answer = "", .answers = {{.text = "blue"}}, .null_score = 2.0},
      {.id = "a", .answer = "", .answers = {{.text = "The red!"}}, .null_score = 1.0}};
  const MetricValues metrics = Metrics(gold, said);
  EXPECT_EQ(metrics.at("exact"), 50);
  EXPECT_EQ(metrics.at("HasAns_f1"), 0);
  EXPECT_EQ(metrics.at("NoAns_total"), 1);
  // Thresholds are sought with the best answers, which were withheld.
  EXPECT_EQ(metrics.at("best_exact"), 100);
  EXPECT_EQ(metrics.at("best_f1_thresh"), 1);
  gold.is_squad_2 = false;
  gold.examples[1].answers = Answers{"blue"};
  EXPECT_EQ(Metrics(gold, said).size(), 3u);
  gold.examples[1].answers.reset();
  EXPECT_THAT(Refusal(gold, said), HasSubstr("'dev.json', example 2: there is no label"));
}

TEST(ScoreReportTest, PredictionsAndExamplesMustFit) {
  Gold gold = Labelled("sst2", "dev.tsv", {"0", "1"}, {"0", "1", "1"});
  EXPECT_THAT(Refusal(gold, Saying({"0", "positive", "1"})),
              HasSubstr("example '2' has the predicted class 'positive', which is none of 0, 1"));
  EXPECT_THAT(Refusal(gold, Saying({"0"})),
              HasSubstr("2 of 3 examples of 'dev.tsv' have no prediction: 2, 3"));
  EXPECT_THAT(Refusal(gold, Saying({"0", "1", "1", "1"})),
              HasSubstr("1 predictions belong to no example of 'dev.tsv': 4"));
  EXPECT_THAT(Refusal(gold, {{.number = 1, .score = 1.0},
                             {.number = 2, .score = 1.0},
                             {.number = 3, .score = 1.0}}),
              HasSubstr("without probabilities"));
  gold.examples[1].label.reset();
  EXPECT_THAT(Refusal(gold, Saying({"0", "1", "1"})), HasSubstr("w: there is no label"));
}

// An official table counts from 0 where the gold file has no identifiers; lines have numbers.
TEST(ScoreReportTest, PredictionsAreFoundByIdentifierOrNumber) {
  Gold gold = Labelled("sst2", "dev.tsv", {"0", "1"}, {"0", "1"});
  std::vector<Prediction> table = Saying({"1", "0"});
  table[0] = {.id = "1", .classes = {"1"}, .probabilities = {1.0}};
  table[1] = {.id = "0", .classes = {"0"}, .probabilities = {1.0}};
  EXPECT_EQ(Metrics(gold, table).at("accuracy"), 1);
  gold.examples[0].id = "40";
  gold.examples[1].id = "50";
  EXPECT_EQ(Metrics(gold, Saying({"0", "1"})).at("accuracy"), 1);
  EXPECT_THAT(Refusal(gold, table), HasSubstr("have no prediction: 40, 50"));
}

TEST(ScoreReportTest, RunsAreScoredOverJudgedTopics) {
  const std::vector<data::TrecJudgment> judgments = {
      {"51", "0", "a", 2}, {"51", "0", "b", 0}, {"52", "0", "c", 1}, {"53", "0", "d", -2}};
  std::vector<data::TrecRunEntry> run = {{"51", "b", 1, 3.0, "x"},
                                         {"51", "a", 2, 1.0, "x"},
                                         {"52", "c", 1, 0.5, "x"},
                                         {"99", "z", 1, 0.5, "x"}};
  const auto report = ScoreRun("qrels", judgments, run).value();
  EXPECT_EQ(report.count, 2u);
  std::vector<std::string> names;
  for (const Metric& metric : report.metrics) names.push_back(metric.name);
  EXPECT_THAT(names, ElementsAre("ndcg@20", "err@20", "ndcg_cut_20", "map"));
  EXPECT_EQ(report.metrics[1].value, (3.0 / 16 / 2 + 1.0 / 16) / 2);
  EXPECT_EQ(report.metrics[3].value, 0.75);
  run.pop_back();
  run.pop_back();
  EXPECT_THAT(ScoreRun("qrels", judgments, run).status(),
              Says("no document of 1 topics of 'qrels': 52"));
  EXPECT_THAT(ScoreRun("qrels", {{"51", "2", "a", 1}}, run).status(), Says("the subtopic '2'"));
  EXPECT_THAT(ScoreRun("qrels", {{"51", "0", "a", 5}}, run).status(),
              Says("grade 5, above gdeval's 4"));
}

}  // namespace
}  // namespace anyorder::launcher
