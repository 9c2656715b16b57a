#include "data/dataset/stored_examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "data/dataset/dataset.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/example_files.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

class StoredExamplesTest : public TextFolderTest {
 protected:
  StoredExamplesTest() : TextFolderTest(TestStream::Random(400, 1000, 5)) {}

  // Opens the dataset with the examples that `damage` changed; the digests fit.
  void ExpectRefused(const std::function<void(TestExamples&)>& damage, const std::string& message) {
    TestExamples examples = examples_;
    damage(examples);
    examples.AddTo(folder_);
    EXPECT_THAT(Dataset::Open(folder_).status(), Fails(absl::IsDataLoss, message));
  }

  TestExamples examples_ = TestExamples::Pairs(400);
};

TEST_F(StoredExamplesTest, EveryPartIsReadWithItsLabel) {
  examples_.AddTo(folder_);
  const auto dataset = Dataset::Open(folder_, {.verify = true}).value();
  const StoredExamples* examples = dataset->examples();
  ASSERT_NE(examples, nullptr);
  ASSERT_EQ(examples->num_examples(), static_cast<int64_t>(examples_.examples.size()));
  EXPECT_EQ(examples->task(), ExampleTask::kEntailment);
  EXPECT_EQ(examples->num_classes(), 2);
  for (int64_t i = 0; i < examples->num_examples(); ++i) {
    const auto example = examples->ReadExample(i).value();
    EXPECT_EQ(example.label, examples_.labels[i]);
    ASSERT_EQ(example.parts.size(), 2u);
    for (size_t part = 0; part < 2; ++part) {
      const auto [begin, length] = examples_.examples[i][part];
      ASSERT_EQ(example.parts[part].size(), length);
      for (uint32_t token = 0; token < length; ++token) {
        EXPECT_EQ(example.parts[part][token], stream_.tokens[begin + token]);
      }
    }
  }
}

TEST_F(StoredExamplesTest, WhatCannotBeIsRefusedWhoeverWroteIt) {
  ExpectRefused([](TestExamples& e) { e.labels[3] = 2; }, "example 3 has label 2 of 2");
  ExpectRefused([](TestExamples& e) { e.labels[0] = -2; }, "example 0 has label -2 of 2");
  ExpectRefused([](TestExamples& e) { e.examples[2][1].length = 0; }, "example 2 has tokens");
  ExpectRefused([](TestExamples& e) { e.examples.back()[1].length = 1u << 31; }, "of 400");
  ExpectRefused([](TestExamples& e) { e.examples.back()[1].begin = ~uint64_t{0} - 3; }, "of 400");
  ExpectRefused([](TestExamples& e) { std::swap(e.examples[4], e.examples[5]); }, "example 5");
  ExpectRefused([](TestExamples& e) { e.examples[1].pop_back(); }, "example 1 has parts 2 to 3");
  // A class may be that of several texts, but not of any number.
  ExpectRefused(
      [](TestExamples& e) {
        e.task = ExampleTask::kClassification;
        e.examples = {{}};
        for (uint64_t i = 0; i <= kMostTexts; ++i) e.examples[0].push_back({i, 1});
        e.labels = {0};
      },
      "which is not classification");
  ExpectRefused([](TestExamples& e) { e.task = ExampleTask::kGeneration; }, "class names");
  ExpectRefused([](TestExamples& e) { e.classes = {"no", "no"}; }, "class names");
  ExpectRefused([](TestExamples& e) { e.labels.pop_back(); }, "bytes");
}

TEST_F(StoredExamplesTest, ScoresAreLabels) {
  examples_ = TestExamples::Scored(400);
  examples_.AddTo(folder_);
  const auto dataset = Dataset::Open(folder_).value();
  const StoredExamples* examples = dataset->examples();
  EXPECT_EQ(examples->num_classes(), 1);
  for (int64_t i = 0; i < examples->num_examples(); ++i) {
    const Example example = examples->ReadExample(i).value();
    EXPECT_EQ(example.label, -1);
    EXPECT_EQ(examples->HasLabel(i), i != 1);
    EXPECT_EQ(std::isnan(example.score), i == 1);
    if (i != 1) {
      EXPECT_EQ(example.score, examples_.scores[i]);
    }
  }
  ExpectRefused([](TestExamples& e) { e.labels[0] = 0; }, "example 0 has label 0 of 0");
  ExpectRefused([](TestExamples& e) { e.scores[2] = std::numeric_limits<float>::infinity(); },
                "example 2 has score inf");
  ExpectRefused([](TestExamples& e) { e.scores.pop_back(); }, "bytes");
  // Datasets of before have classes, and nothing behind the labels.
  ExpectRefused([](TestExamples& e) { e.classes = {"no", "yes"}; }, "bytes");
}

TEST_F(StoredExamplesTest, AnswersAreTokensOfThePassage) {
  examples_ = TestExamples::Questions(400);
  examples_.AddTo(folder_);
  const auto dataset = Dataset::Open(folder_).value();
  const StoredExamples* examples = dataset->examples();
  for (int64_t i = 0; i < examples->num_examples(); ++i) {
    const Example example = examples->ReadExample(i).value();
    const ExampleOutline outline = examples->Outline(i).value();
    EXPECT_EQ(example.label, examples_.labels[i]);
    EXPECT_EQ(example.answer_begin, examples_.answers[i][0]);
    EXPECT_EQ(example.answer_end, examples_.answers[i][1]);
    EXPECT_EQ(outline.label, example.label);
    EXPECT_EQ(outline.answer_begin, example.answer_begin);
    EXPECT_EQ(outline.answer_end, example.answer_end);
    EXPECT_EQ(outline.lengths,
              (std::vector<int64_t>{std::ssize(example.parts[0]), std::ssize(example.parts[1])}));
  }
  ExpectRefused([](TestExamples& e) { e.answers[3] = {2, 2}; }, "example 3 has the answer 2 to 2");
  ExpectRefused(
      [](TestExamples& e) {
        e.answers[0] = {0, 8};
      },
      "example 0 has the answer 0 to 8 of 7 tokens and label 1");
  ExpectRefused([](TestExamples& e) { e.answers[0] = {-1, 1}; }, "answer -1 to 1");
  ExpectRefused([](TestExamples& e) { e.answers[1] = {0, 1}; }, "label 0");
  ExpectRefused([](TestExamples& e) { e.answers[2] = {-1, 0}; }, "label -1");
  ExpectRefused([](TestExamples& e) { e.labels[0] = 2; }, "example 0 has label 2 of 2");
  ExpectRefused([](TestExamples& e) { e.answers.pop_back(); }, "bytes");
}

TEST_F(StoredExamplesTest, EveryTokenOfATaggedTextHasItsTag) {
  examples_ = TestExamples::Tagged(400);
  examples_.AddTo(folder_);
  const auto dataset = Dataset::Open(folder_, {.verify = true}).value();
  const StoredExamples* examples = dataset->examples();
  ASSERT_EQ(examples->num_examples(), std::ssize(examples_.examples));
  EXPECT_EQ(examples->num_classes(), 3);
  size_t seen = 0;
  for (int64_t i = 0; i < examples->num_examples(); ++i) {
    const Example example = examples->ReadExample(i).value();
    const auto [begin, length] = examples_.examples[i][0];
    EXPECT_EQ(example.label, i % 3 == 1 ? -1 : 0);
    EXPECT_EQ(examples->HasLabel(i), i % 3 != 1);
    EXPECT_TRUE(std::isnan(example.score));
    ASSERT_EQ(example.parts.size(), 1u);
    ASSERT_EQ(example.parts[0].size(), length);
    ASSERT_EQ(example.tags.size(), length);
    for (size_t token = 0; token < length; ++token) {
      EXPECT_EQ(example.parts[0][token], stream_.tokens[begin + token]);
      EXPECT_EQ(example.tags[token], examples_.tags[seen++]) << i;
    }
  }
  EXPECT_EQ(seen, examples_.tags.size());
}

TEST_F(StoredExamplesTest, TagsThatCannotBeAreRefused) {
  examples_ = TestExamples::Tagged(400);
  // The first texts have 1, 2 and 3 tokens.
  ExpectRefused([](TestExamples& e) { e.tags[0] = 3; }, "example 0 has tag 3 of 3 at token 0");
  ExpectRefused([](TestExamples& e) { e.tags[2] = -3; }, "example 1 has tag -3 of 3 at token 1");
  ExpectRefused([](TestExamples& e) { e.tags[3] = kNoTag; },
                "example 2 begins with a token that begins no word");
  ExpectRefused([](TestExamples& e) { e.tags[3] = kUnknownTag; },
                "example 2 has label 0, but its tags are not all known");
  ExpectRefused([](TestExamples& e) { e.labels[1] = 0; },
                "example 1 has label 0, but its tags are not all known");
  ExpectRefused([](TestExamples& e) { e.labels[0] = -1; },
                "example 0 has label -1, but its tags are known");
  ExpectRefused([](TestExamples& e) { e.labels[0] = 1; }, "example 0 has label 1 of 1");
  ExpectRefused([](TestExamples& e) { e.tags.pop_back(); }, "bytes");
  ExpectRefused([](TestExamples& e) { e.classes.clear(); },
                "has 0 class names, which cannot be those of token_classification");
  ExpectRefused(
      [](TestExamples& e) {
        e.examples[1].push_back({4, 1});
      },
      "which is not token_classification");
}

TEST_F(StoredExamplesTest, TaggedTextsAreTheWholeStream) {
  examples_ = TestExamples::Tagged(400);
  const std::string message = "which are not all between its <eod> and the one before";
  ExpectRefused([](TestExamples& e) { ++e.examples[1][0].length; },
                "example 2 has tokens 5 to 8 of 400, " + message);
  ExpectRefused([](TestExamples& e) { e.examples[0][0].length = 399; }, "example 0 has tokens 0");
  ExpectRefused(
      [](TestExamples& e) {
        e.examples[2][0] = {6, 2};
      },
      "example 2 has tokens 6 to 8 of 400, " + message);
  ExpectRefused([](TestExamples& e) { --e.examples.back()[0].length; }, message);
  ExpectRefused([](TestExamples& e) { ++e.examples.back()[0].length; }, message);
}

TEST_F(StoredExamplesTest, DamageIsFound) {
  examples_.AddTo(folder_);
  const std::string path = folder_ + "/" + kExamplesFile;
  const std::string good = ReadFile(path);
  FlipBit(path, good.size() / 2);
  EXPECT_THAT(Dataset::Open(folder_).status(), Says("is damaged"));
  WriteFile(path, good.substr(1));
  EXPECT_TRUE(absl::IsDataLoss(Dataset::Open(folder_).status()));
  std::filesystem::remove(path);
  EXPECT_THAT(Dataset::Open(folder_).status(), Says("is missing"));
}

TEST_F(StoredExamplesTest, NumbersOfTheIndexThatWouldWrapAreRefused) {
  examples_.AddTo(folder_);
  auto index = ReadDatasetIndex(folder_).value();
  for (const auto& [examples, parts] : {std::pair<uint64_t, uint64_t>{0, 4},
                                        {uint64_t{1} << 61, uint64_t{1} << 62},
                                        {3, 2},
                                        {3, 401}}) {
    index.examples->num_examples = examples;
    index.examples->num_parts = parts;
    WriteFile(folder_ + "/" + kIndexFile, SerializeDatasetIndex(index));
    EXPECT_THAT(Dataset::Open(folder_).status(), Says("do not fit 400 tokens"));
  }
}

}  // namespace
}  // namespace anyorder::data
