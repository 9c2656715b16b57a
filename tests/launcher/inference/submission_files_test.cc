// Official files, byte by byte, and read again.

#include "launcher/inference/submission_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

std::vector<Prediction> Classes(const std::vector<std::string>& names) {
  std::vector<Prediction> all;
  for (const std::string& name : names) {
    all.push_back({.number = static_cast<int64_t>(all.size()) + 1,
                   .classes = {name, "other"},
                   .probabilities = {0.75, 0.25}});
  }
  return all;
}

std::string NameOf(const std::string& task, const std::string& input) {
  const auto files = SubmissionFiles(task, input, {});
  return files.ok() ? (*files)[0].name : std::string(files.status().message());
}

TEST(SubmissionFilesTest, GlueHasATableForEachTask) {
  const auto text_of = [](const std::string& task, const std::vector<Prediction>& predictions) {
    return SubmissionFiles(task, "test.tsv", predictions).value()[0].text;
  };
  EXPECT_EQ(text_of("qnli", Classes({"entailment", "neutral"})),
            "index\tprediction\n0\tentailment\n1\tneutral\n");
  EXPECT_EQ(text_of("stsb", {{.number = 1, .id = "9", .score = 2.5}, {.number = 2, .score = 0.1}}),
            "index\tprediction\n9\t2.5\n1\t0.1\n");
  EXPECT_EQ(NameOf("sst2", "test.tsv"), "SST-2.tsv");
  EXPECT_EQ(NameOf("stsb", "test.tsv"), "STS-B.tsv");
  EXPECT_EQ(NameOf("qnli-rank", "test.tsv"), "QNLI.tsv");
  EXPECT_EQ(NameOf("ax", "AX.tsv"), "AX.tsv");
  EXPECT_EQ(NameOf("mnli", "mismatched/test_matched.tsv"), "MNLI-m.tsv");
  EXPECT_EQ(NameOf("mnli", "MNLI/test_mismatched.tsv"), "MNLI-mm.tsv");
  EXPECT_THAT(NameOf("mnli", "test.tsv"), HasSubstr("neither matched nor mismatched"));
  EXPECT_THAT(NameOf("imdb", "test"), HasSubstr("imdb is not sent to a benchmark"));
  EXPECT_THAT(NameOf("", "test"), HasSubstr("name it with --task"));
}

TEST(SubmissionFilesTest, RaceHasLettersByQuestion) {
  const std::vector<Prediction> choices = {
      {.id = "high/1.txt#0", .probabilities = {0.1, 0.2, 0.6, 0.1}},
      {.id = "middle/2.txt#3", .probabilities = {0.4, 0.4, 0.1, 0.1}}};
  const auto files = SubmissionFiles("race", "test", choices).value();
  EXPECT_EQ(files[0].name, "race.tsv");
  EXPECT_EQ(files[0].text, "id\tprediction\nhigh/1.txt#0\tC\nmiddle/2.txt#3\tA\n");
  EXPECT_THAT(SubmissionFiles("race", "test", {{.number = 3, .probabilities = {1.0}}}).status(),
              Says("example 3 has no identifier"));
  EXPECT_THAT(SubmissionFiles("race", "test", Classes({"a"})).status(),
              Says("example 1 was not predicted with a choice"));
}

TEST(SubmissionFilesTest, ConllHasItsRowsWithOneMoreColumn) {
  const TemporaryDirectory folder;
  const std::string input = folder.Write("test.txt",
                                         "-DOCSTART- -X- -X- O\n\nHe\tPRP B-NP O\r\n"
                                         "left VBD  B-VP O\n\n\nParis NNP B-NP B-LOC\n"
                                         "-DOCSTART- -X- -X- O\nEnd NN B-NP O\n");
  const std::vector<std::string> classes = {"O", "B-LOC"};
  const std::vector<Prediction> said = {
      {.classes = classes, .word_probabilities = {{{1, 0}, {0, 1}}}},
      {.classes = classes, .word_probabilities = {{{0, 1}}}},
      {.classes = classes, .word_probabilities = {{{1, 0}}}}};
  const auto files = SubmissionFiles("conll2003", input, said).value();
  EXPECT_EQ(files[0].name, "conlleval.txt");
  EXPECT_EQ(files[0].text,
            "He PRP B-NP O O\nleft VBD B-VP O B-LOC\n\nParis NNP B-NP B-LOC B-LOC\n\n"
            "End NN B-NP O O\n\n");
  EXPECT_THAT(SubmissionFiles("conll2003", input, {said[0]}).status(),
              Says("has 4 words, but 2 were predicted; name the file that was"));
  // Known before anything is predicted.
  EXPECT_THAT(NameOf("conll2000", folder.path()), HasSubstr("name the official file, unpacked"));
  EXPECT_THAT(NameOf("conll2000", folder.path() + "/none.txt"), HasSubstr("is no plain file"));
  EXPECT_EQ(NameOf("conll2000", input), "conlleval.txt");
}

TEST(SubmissionFilesTest, SquadHasAnswersListsAndNullScores) {
  const auto files =
      SubmissionFiles(
          "squad2", "dev-v2.0.json",
          {{.id = "q", .answer = "é", .answers = {{"é", 0, 1, std::log(0.5)}}, .null_score = -1.5},
           {.id = "r", .answer = "", .answers = {}, .null_score = 2.0}})
          .value();
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].text, "{\n    \"q\": \"\\u00e9\",\n    \"r\": \"\"\n}\n");
  EXPECT_EQ(files[1].name, "nbest_predictions.json");
  EXPECT_EQ(
      files[1].text,
      "{\n    \"q\": [\n        {\n            \"text\": \"\\u00e9\",\n            "
      "\"probability\": 0.5\n        }\n    ],\n    \"r\": [\n        {\n            \"text\": "
      "\"\",\n            \"probability\": 1.0\n        }\n    ]\n}\n");
  EXPECT_EQ(files[2].text, "{\n    \"q\": -1.5,\n    \"r\": 2.0\n}\n");
}

TEST(SubmissionFilesTest, TrecRunsAreInTheOrderOfEvaluation) {
  EXPECT_EQ(TrecRun({{"51", "b", 0, 0.5, ""},
                     {"9", "x", 0, 1.0, ""},
                     {"51", "c", 0, 0.5, ""},
                     {"51", "a", 0, 7.25, ""}},
                    "mine"),
            "51 Q0 a 1 7.25 mine\n51 Q0 c 2 0.5 mine\n51 Q0 b 3 0.5 mine\n9 Q0 x 1 1.0 mine\n");
}

TEST(SubmissionFilesTest, FilesAreNeverOverwritten) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/new";
  ASSERT_TRUE(CheckSubmission("sst2", "test.tsv", path).ok());
  ASSERT_TRUE(WriteSubmission({{"SST-2.tsv", "one"}}, path).ok());
  EXPECT_EQ(*ReadWholeFile(path + "/SST-2.tsv", kMaxTextBytes), "one");
  for (const absl::Status& status : {CheckSubmission("sst2", "test.tsv", path),
                                     WriteSubmission({{"a", "two"}, {"SST-2.tsv", "two"}}, path)}) {
    EXPECT_THAT(status, Exits(kExitUsage, "exists and is not overwritten"));
  }
  EXPECT_EQ(*ReadWholeFile(path + "/SST-2.tsv", kMaxTextBytes), "one");
  EXPECT_FALSE(ReadWholeFile(path + "/a", kMaxTextBytes).ok());
}

// Rows 0 and 1 are of one question, 2 of one alone, 3 and 4 of one without a right sentence.
Gold RankedRows(bool is_labelled) {
  Gold gold{.path = "dev.tsv", .task = "qnli-rank", .classes = {"entailment", "not_entailment"}};
  const char* groups[] = {"p", "p", "q", "r", "r"};
  for (size_t i = 0; i < std::size(groups); ++i) {
    gold.examples.push_back({.id = std::to_string(i), .group = groups[i]});
    if (is_labelled) gold.examples[i].label = gold.classes[i == 1 || i == 2 ? 0 : 1];
  }
  return gold;
}

std::string Ranked(const Gold& gold, const std::vector<Prediction>& predictions) {
  const auto rows = RankCandidates(gold, predictions);
  if (!rows.ok()) return std::string(rows.status().message());
  std::string text;
  for (const Prediction& row : *rows) text += row.label() == "entailment" ? row.id : "-";
  return text;
}

TEST(RankCandidatesTest, TheBestCandidateOfEachQuestionIsRight) {
  const Gold gold = RankedRows(true);
  EXPECT_EQ(Ranked(gold, {{.id = "0,1", .probabilities = {0.25, 0.75}}}), "-123-");
  // Of test data nothing was left out but what stands alone.
  EXPECT_EQ(Ranked(RankedRows(false), {{.id = "0,1", .probabilities = {0.75, 0.25}},
                                       {.id = "3,4", .probabilities = {0.25, 0.75, 0.0}}}),
            "0-2-4");
  EXPECT_THAT(Ranked(RankedRows(false), {{.id = "0,1", .probabilities = {0.75, 0.25}}}),
              HasSubstr("2 of 5 rows of 'dev.tsv' have no prediction: 3, 4"));
  EXPECT_THAT(Ranked(gold, {}), HasSubstr("have no prediction: 0, 1"));
  EXPECT_THAT(Ranked(gold, {{.id = "0,8", .probabilities = {1.0, 0.0}}}),
              HasSubstr("row '8', which 'dev.tsv' has not"));
  EXPECT_THAT(Ranked(gold, {{.number = 1, .probabilities = {1.0, 0.0}}}),
              HasSubstr("has no identifier"));
}

TEST(RankCandidatesTest, ClassifiedRowsAreRankedByTheirProbability) {
  std::vector<Prediction> rows;
  for (const double probability : {0.7, 0.8, 0.4, 0.1, 0.2}) {
    rows.push_back({.id = std::to_string(rows.size()),
                    .classes = {"not_entailment", "entailment"},
                    .probabilities = {1 - probability, probability}});
  }
  EXPECT_EQ(Ranked(RankedRows(true), rows), "-1--4");
  rows[2].probabilities = {0.25, 0.75};
  EXPECT_EQ(Ranked(RankedRows(true), rows), "-12-4");
  rows[2].classes = {"0", "1"};
  EXPECT_THAT(Ranked(RankedRows(true), rows), HasSubstr("the class '0' is none of qnli-rank"));
}

}  // namespace
}  // namespace anyorder::launcher
