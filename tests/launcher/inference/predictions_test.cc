// Predictions are read as they were written, also from official files, and several networks' are
// averaged.

#include "launcher/inference/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kRounding = 4 * 0x1p-53;

class PredictionsTest : public ::testing::Test {
 protected:
  std::vector<Prediction> Read(const std::string& bytes, LabelKind kind = LabelKind::kClass) const {
    return ReadPredictions(folder_.Write("file", bytes), kind).value();
  }
  void ExpectRefused(const std::string& bytes, const std::string& message,
                     LabelKind kind = LabelKind::kClass) const {
    EXPECT_THAT(ReadPredictions(folder_.Write("bad", bytes), kind).status(),
                Exits(kExitData, message));
  }

  const TemporaryDirectory folder_;
};

TEST_F(PredictionsTest, LinesAreTheDocumentedOnes) {
  const Prediction of_classes{.number = 1,
                              .id = "7",
                              .text = "é",
                              .classes = {"no", "yes"},
                              .probabilities = {0.25, 0.75},
                              .given_label = 0};
  EXPECT_EQ(PredictionLine(of_classes),
            "{\"example\":1,\"id\":\"7\",\"text\":\"é\",\"label\":\"yes\",\"probabilities\":{"
            "\"no\":0.25,\"yes\":0.75},\"given_label\":\"no\"}\n");
  EXPECT_EQ(PredictionLine({.number = 2, .probabilities = {0.5, 0.5}, .given_label = 1}),
            "{\"example\":2,\"label\":0,\"probabilities\":[0.5,0.5],\"given_label\":1}\n");
  EXPECT_EQ(PredictionLine({.number = 3, .score = 1.5, .given_score = 2.0}),
            "{\"example\":3,\"score\":1.5,\"given_score\":2.0}\n");
  EXPECT_EQ(
      PredictionLine({.number = 4,
                      .id = "q",
                      .answer = "",
                      .answers = {{"red", 3, 6, -0.5}, {"blue", {}, -1.5}},
                      .null_score = 2.0,
                      .given_answers = std::vector<std::string>{"red"}}),
      "{\"example\":4,\"id\":\"q\",\"answer\":\"\",\"answers\":[{\"text\":\"red\",\"begin\":3,"
      "\"end\":6,\"log_probability\":-0.5},{\"text\":\"blue\",\"log_probability\":-1.5}],"
      "\"null_score\":2.0,\"given_answers\":[\"red\"]}\n");
}

// A word that was not read has no probabilities, and so the first class.
TEST_F(PredictionsTest, TagsAreWrittenReadAndAveragedByName) {
  const Prediction first{.number = 1,
                         .classes = {"O", "B-X"},
                         .word_probabilities = {{{0.25, 0.75}, {0.5, 0.5}, {0, 0}}},
                         .given_tags = {"O", "B-X", "O"}};
  const std::string line = PredictionLine(first);
  EXPECT_EQ(line,
            "{\"example\":1,\"tags\":[\"B-X\",\"O\",\"O\"],\"tag_probabilities\":{\"O\":[0.25,"
            "0.5,0.0],\"B-X\":[0.75,0.5,0.0]},\"given_tags\":[\"O\",\"B-X\",\"O\"]}\n");
  const std::vector<Prediction> read = Read(line);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].word_probabilities, first.word_probabilities);
  EXPECT_THAT(read[0].tags(), ElementsAre("B-X", "O", "O"));
  // Another order of the classes, one of which the first file does not have.
  const Prediction second{.number = 1,
                          .classes = {"B-X", "I-X", "O"},
                          .word_probabilities = {{{0, 1, 0}, {0.25, 0, 0.75}, {0, 0.5, 0.5}}}};
  const auto average = AveragePredictions({{first}, {second}}, {"a", "b"}).value();
  EXPECT_THAT(average[0].classes, ElementsAre("O", "B-X", "I-X"));
  EXPECT_THAT(*average[0].word_probabilities,
              ElementsAre(ElementsAre(0.125, 0.375, 0.5), ElementsAre(0.625, 0.375, 0),
                          ElementsAre(0.25, 0, 0.25)));
  EXPECT_THAT(average[0].tags(), ElementsAre("I-X", "O", "O"));
  Prediction shorter = first;
  shorter.word_probabilities->pop_back();
  EXPECT_THAT(AveragePredictions({{first}, {shorter}}, {"a", "b"}).status(),
              Says("b: example '1' has predictions of another kind than in a"));
  ExpectRefused("{\"example\":1,\"tag_probabilities\":[1]}\n", "is not an object");
  ExpectRefused("{\"example\":1,\"tag_probabilities\":{\"O\":[1],\"B\":[1,0]}}\n",
                "has lists of other lengths, or 'B' is none");
  ExpectRefused("{\"example\":1,\"tag_probabilities\":{\"O\":0.5}}\n", "or 'O' is none");
}

TEST_F(PredictionsTest, LinesAreReadAgain) {
  const std::vector<Prediction> written = {
      {.number = 1, .id = "a", .classes = {"no", "yes"}, .probabilities = {0.1, 0.9}},
      {.number = 2, .probabilities = {0.2, 0.3, 0.5}},
      {.number = 3, .score = 0.1 + 0.2},
      {.number = 4, .answer = "x", .answers = {{"x", 0, 1, -1e-17}}, .null_score = -3.25}};
  std::string bytes;
  for (const Prediction& one : written) bytes += PredictionLine(one);
  const std::vector<Prediction> read = Read(bytes);
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i)
    EXPECT_EQ(PredictionLine(read[i]), PredictionLine(written[i]));
}

TEST_F(PredictionsTest, OfficialFilesHaveLabelsAlone) {
  const std::vector<Prediction> classes =
      Read("index\tprediction\r\n5\tentailment\r\n6\tneutral\r\n");
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[1].id, "6");
  EXPECT_EQ(classes[1].label(), "neutral");
  EXPECT_EQ(Read("id\tprediction\nhigh/1.txt#0\tC\n", LabelKind::kChoice)[0].label(), "2");
  EXPECT_EQ(Read("index\tprediction\n0\t3.25\n", LabelKind::kScore)[0].score, 3.25);
  const std::vector<Prediction> answers = Read("{\"q1\": \"red\",\n \"q2\": \"\"}");
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].answer, "red");
  EXPECT_EQ(answers[1].answer, "");
  EXPECT_TRUE(answers[1].answers.empty());
}

TEST_F(PredictionsTest, NullScoresComeFromAFileOfTheirOwn) {
  std::vector<Prediction> answers = Read("{\"q1\": \"red\", \"q2\": \"\"}");
  ASSERT_TRUE(ReadNullScores(folder_.Write("odds", "{\"q2\": 1, \"q1\": -2.5}"), answers).ok());
  EXPECT_EQ(answers[0].null_score, -2.5);
  EXPECT_THAT(ReadNullScores(folder_.Write("odds", "{\"q2\": 1}"), answers),
              Says("odds: there is no finite number for question 'q1'"));
}

TEST_F(PredictionsTest, WhatCannotBeReadIsRefusedWithItsLine) {
  const std::string good = "{\"example\":1,\"label\":0,\"probabilities\":[1]}\n";
  ExpectRefused(good + "\n" + good, "bad:3: example '1' was predicted before, in line 1");
  ExpectRefused(good + "{\"example\":", "bad:2: not valid JSON");
  ExpectRefused(good + "[1]", "bad:2: not a JSON object");
  ExpectRefused(good + "{\"label\":0}", "bad:2: there is no number 'example' from 1");
  ExpectRefused(good + "{\"example\":18446744073709551615,\"score\":1}",
                "bad:2: there is no number 'example' from 1");
  ExpectRefused(good + "{\"example\":2,\"label\":0}", "bad:2: none of the fields");
  ExpectRefused(good + "{\"example\":2,\"score\":\"a\"}", "bad:2: 'score' is not a finite number");
  ExpectRefused(good + "{\"example\":2,\"answers\":[{\"text\":\"a\"}]}",
                "bad:2: an answer has no 'text' or no 'log_probability'");
  ExpectRefused(good + R"({"example":2,"answers":[{"text":"a","log_probability":0,"end":"x"}]})",
                "bad:2: 'end' of an answer is not a whole number");
  ExpectRefused("index\tprediction\n1\n", "bad:2: a row has two cells");
  ExpectRefused("index\tprediction\n1\ta\n1\ta\n", "bad:3: example '1' was predicted before");
  ExpectRefused("id\tprediction\nx\tentailment\n", "bad:2: the choice 'entailment' is not a letter",
                LabelKind::kChoice);
  ExpectRefused("index\tprediction\n1\tnan\n", "bad:2: the score 'nan'", LabelKind::kScore);
  ExpectRefused("index\tprediction\n", "bad holds no prediction");
  ExpectRefused("index,prediction\n", "bad:1: this is neither JSON lines");
  ExpectRefused("{\"q\": 1}", "bad: the answer to 'q' is not a string");
  ExpectRefused("", "bad:1: this is neither JSON lines");
}

TEST_F(PredictionsTest, NetworksAreAveragedByName) {
  const auto mean =
      AveragePredictions(
          {{{.number = 1, .id = "a", .classes = {"x", "y"}, .probabilities = {0.9, 0.1}},
            {.number = 2, .id = "b", .classes = {"x", "y"}, .probabilities = {0.4, 0.6}}},
           {{.number = 2, .id = "b", .classes = {"y", "x"}, .probabilities = {0.2, 0.8}},
            {.number = 1, .id = "a", .classes = {"z"}, .probabilities = {1.0}}}},
          {"one", "two"})
          .value();
  EXPECT_THAT(mean[0].classes, ElementsAre("x", "y", "z"));
  EXPECT_THAT(mean[0].probabilities,
              ElementsAre(DoubleNear(0.45, kRounding), DoubleNear(0.05, kRounding), 0.5));
  EXPECT_EQ(mean[0].label(), "z");
  EXPECT_EQ(mean[1].label(), "x");
  EXPECT_EQ((*AveragePredictions({{{.number = 1, .score = 1.0}}, {{.number = 1, .score = 2.0}}},
                                 {"one", "two"}))[0]
                .score,
            1.5);
}

// An answer that one network does not list has probability 0 there.
TEST_F(PredictionsTest, AnswersAreAveragedByText) {
  const auto mean =
      AveragePredictions({{{.id = "q",
                            .answer = "a",
                            .answers = {{"a", 0, 1, std::log(0.5)}, {"b", 2, 3, std::log(0.375)}},
                            .null_score = -1.0}},
                          {{.id = "q",
                            .answer = "b",
                            .answers = {{"b", 2, 3, std::log(0.25)}, {"b", 7, 8, std::log(0.125)}},
                            .null_score = 4.0}}},
                         {"one", "two"})
          .value();
  const Prediction& one = mean[0];
  EXPECT_EQ(one.answer, "b");
  EXPECT_EQ(one.null_score, 1.5);
  ASSERT_EQ(one.answers.size(), 2u);
  EXPECT_NEAR(std::exp(one.answers[0].log_probability), 0.3125, kRounding);
  EXPECT_NEAR(std::exp(one.answers[1].log_probability), 0.25, kRounding);
}

TEST_F(PredictionsTest, NetworksMustHavePredictedTheSame) {
  const Prediction a{.id = "a", .score = 1.0};
  const Prediction b{.id = "b", .score = 1.0};
  const Prediction other{.id = "a", .probabilities = {1.0}};
  const auto refused = [](std::vector<std::vector<Prediction>> files) {
    return std::string(AveragePredictions(std::move(files), {"one", "two"}).status().message());
  };
  EXPECT_THAT(refused({{a, b}, {a}}), HasSubstr("two has predictions of 1 examples, but one of 2"));
  EXPECT_THAT(refused({{a}, {b}}), HasSubstr("two has example 'b', which one has not"));
  EXPECT_THAT(refused({{a}, {other}}), HasSubstr("predictions of another kind"));
}

}  // namespace
}  // namespace anyorder::launcher
