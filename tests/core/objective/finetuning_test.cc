#include "core/objective/finetuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"

#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kClsId = 3, kSepId = 4;
constexpr int64_t kTaskLength = 16;
constexpr const char* kBothWays[] = {"xlnet_finetuning", "bert_finetuning",
                                     "longformer_finetuning"};

TextSample SampleOf(std::vector<std::vector<int32_t>> parts) {
  TextSample sample = {
      .vocabulary = {.separator = kSepId, .classifier = kClsId, .mask = 6, .size = 99, .begin = 1}};
  sample.parts = std::move(parts);
  return sample;
}

ModelConfig ModelFor(const std::string& objective, const TaskConfig& task) {
  ModelConfig model = SmallLearnedModel(kTaskLength, 2);
  if (objective == "xlnet_finetuning") {
    model = SmallModel();
    model.mem_len = 0;
  }
  model.task = task;
  return model;
}

Batch BatchOf(const std::string& objective, const TaskConfig& task, const TextSample& sample) {
  return BuildBatch(
      *MakeObjectiveOrDie(objective, ModelFor(objective, task), OneWaySampling(kTaskLength)),
      {sample});
}

std::vector<int32_t> Head(const std::vector<int32_t>& values, size_t count) {
  return {values.begin(), values.begin() + static_cast<int64_t>(count)};
}

// Slots of a lane for which `holds` says so.
template <typename Holds>
std::vector<int64_t> Slots(int64_t count, const Holds& holds) {
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < count; ++i)
    if (holds(i)) slots.push_back(i);
  return slots;
}

// A third text has a segment of its own where segments are relative, which CLS has not either.
TEST(FineTuningTest, TextsStandBetweenSpecialTokensAsReleased) {
  struct Case {
    const char* name;
    const InputLayout& layout;
    std::string one, two, four;
    std::string segments_of_two = "", segments_of_four = "";  // empty: they are not looked at
  };
  const Case cases[] = {
      {"xlnet", kXlnetLayout, "10 11 12 SEP CLS", "10 11 12 SEP 20 21 SEP CLS",
       "10 11 SEP 20 SEP 30 31 SEP 40 SEP CLS", "00001112", "00011333442"},
      {"bert", kBertLayout, "CLS 10 11 12 SEP", "CLS 10 11 12 SEP 20 21 SEP",
       "CLS 10 11 SEP 20 SEP 30 31 SEP 40 SEP", "00000111", "00001111111"},
      {"longformer", kLongformerLayout, "CLS 10 11 12 SEP", "CLS 10 11 12 SEP SEP 20 21 SEP",
       "CLS 10 11 SEP SEP 20 SEP SEP 30 31 SEP SEP 40 SEP"},
      {"gpt", kGptLayout, "BOS 10 11 12 CLS", "BOS 10 11 12 SEP 20 21 CLS",
       "BOS 10 11 SEP 20 SEP 30 31 SEP 40 CLS"}};
  const auto words = [](const std::vector<int32_t>& tokens) {
    return absl::StrJoin(tokens, " ", [](std::string* out, int32_t token) {
      const std::map<int32_t, std::string> names = {{kClsId, "CLS"}, {kSepId, "SEP"}, {1, "BOS"}};
      *out += names.contains(token) ? names.at(token) : std::to_string(token);
    });
  };
  const auto place = [](const TaskSequence& all, int32_t token) {
    return std::find(all.tokens.begin(), all.tokens.end(), token) - all.tokens.begin();
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto laid_out = [&](const std::vector<std::vector<int32_t>>& texts) {
      std::vector<const std::vector<int32_t>*> parts;
      for (const std::vector<int32_t>& text : texts) parts.push_back(&text);
      return LayOut(c.layout.Of(std::ssize(parts)), SampleOf({}).vocabulary, parts, kTaskLength);
    };
    EXPECT_EQ(words(laid_out({{10, 11, 12}}).tokens), c.one);
    const TaskSequence two = laid_out({{10, 11, 12}, {20, 21}});
    const TaskSequence four = laid_out({{10, 11}, {20}, {30, 31}, {40}});
    EXPECT_EQ(words(two.tokens), c.two);
    EXPECT_EQ(words(four.tokens), c.four);
    EXPECT_EQ(two.classifier, place(two, kClsId));
    EXPECT_EQ(two.size[1], 2);
    EXPECT_EQ(two.begin[1], place(two, 20));
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(four.begin[i], place(four, static_cast<int32_t>(10 * (i + 1)))) << i;
    if (c.segments_of_two.empty()) continue;
    EXPECT_EQ(absl::StrJoin(two.segments, ""), c.segments_of_two);
    EXPECT_EQ(absl::StrJoin(four.segments, ""), c.segments_of_four);
  }
}

// Short texts stay whole, and the rest is shared out.
TEST(FineTuningTest, TextsShareTheRoom) {
  const std::vector<int32_t> one(1, 10), five(5, 20), nine(9, 30);
  const auto sizes = [&](int64_t room) {
    return LayOut(kBertLayout.Of(3), SampleOf({}).vocabulary, {&nine, &one, &five}, 4 + room).size;
  };
  EXPECT_THAT(sizes(15), ElementsAre(9, 1, 5));
  EXPECT_THAT(sizes(14), ElementsAre(8, 1, 5));
  EXPECT_THAT(sizes(10), ElementsAre(5, 1, 4));
  EXPECT_THAT(sizes(3), ElementsAre(1, 1, 1));
  // Whatever the lengths: no token is lost that would fit, none vanishes, none gets more than a
  // longer one.
  for (size_t a = 1; a < 8; ++a) {
    for (size_t b = 1; b < 8; ++b) {
      for (size_t c = 1; c < 8; ++c) {
        for (size_t room = 3; room < 24; ++room) {
          const std::vector<int32_t> texts[] = {std::vector<int32_t>(a, 10),
                                                std::vector<int32_t>(b, 20),
                                                std::vector<int32_t>(c, 30)};
          const std::vector<int64_t> made =
              LayOut(kBertLayout.Of(3), SampleOf({}).vocabulary, {&texts[0], &texts[1], &texts[2]},
                     4 + static_cast<int64_t>(room))
                  .size;
          ASSERT_EQ(made[0] + made[1] + made[2], static_cast<int64_t>(std::min(room, a + b + c)));
          for (const int i : {0, 1, 2}) {
            ASSERT_GE(made[i], 1);
            for (const int j : {0, 1, 2})
              ASSERT_TRUE(made[i] == std::ssize(texts[i]) || made[i] + 1 >= made[j]);
          }
        }
      }
    }
  }
}

TEST(FineTuningTest, WhatDoesNotFitIsCutAtTheEndsOfItsTexts) {
  const TextSample sample = SampleOf({{10, 11, 12, 13, 14, 15}, {20, 21, 22, 23, 24}});
  // Room for five: three and two; the whole of a short one.
  EXPECT_THAT(
      LayOut(kGptLayout.Of(2), sample.vocabulary, {&sample.parts[0], &sample.parts[1]}, 8).tokens,
      ElementsAre(1, 10, 11, 12, kSepId, 20, 21, kClsId));
  EXPECT_THAT(LayOut(kGptLayout.Of(1), sample.vocabulary, {&sample.parts[0]}, 5).tokens,
              ElementsAre(1, 10, 11, 12, kClsId));
  // No text vanishes, no token is lost that would fit, whatever the lengths.
  for (const InputLayout& layout : {kXlnetLayout, kLongformerLayout, kGptLayout}) {
    const std::string text = layout.Of(2);
    const auto special = static_cast<size_t>(std::count(text.begin(), text.end(), '<'));
    for (size_t first = 1; first < 12; ++first) {
      for (size_t second = 1; second < 12; ++second) {
        for (size_t seq_len = special + 2; seq_len < 20; ++seq_len) {
          const std::vector<int32_t> a(first, 10), b(second, 20);
          const std::vector<int32_t> made =
              LayOut(text, sample.vocabulary, {&a, &b}, static_cast<int64_t>(seq_len)).tokens;
          EXPECT_EQ(made.size(), std::min(seq_len, first + second + special));
          EXPECT_NE(std::find(made.begin(), made.end(), 10), made.end());
          EXPECT_NE(std::find(made.begin(), made.end(), 20), made.end());
        }
      }
    }
  }
}

TEST(FineTuningTest, EveryTokenOfASequenceSeesAllOfItAndNothingElse) {
  for (const char* const objective : kBothWays) {
    for (const ExampleTask task : {ExampleTask::kClassification, ExampleTask::kSimilarity,
                                   ExampleTask::kMultipleChoice, ExampleTask::kSpans}) {
      SCOPED_TRACE(std::string(objective) + " " + EnumName(task));
      const TaskConfig config{.task = task, .num_classes = task == ExampleTask::kSpans ? 0 : 3};
      const Batch batch =
          BatchOf(objective, config, SampleOf({{10, 11, 12}, {20, 21, 22, 23}, {30}}));
      const auto is_token = [&](int64_t slot) { return batch.row_doc[slot] >= 0; };
      ExpectSees(batch, [&](int64_t row, int64_t key) {
        return is_token(row) && is_token(key) && row / kTaskLength == key / kTaskLength;
      });
      for (int64_t row = 0; row < batch.shape.content_rows; ++row)
        EXPECT_EQ(batch.row_pos[row], row % kTaskLength);
      // A similarity pair is read once, and a choice that the example lacks is padding.
      EXPECT_EQ(batch.shape.content_rows,
                task == ExampleTask::kMultipleChoice ? 3 * kTaskLength : kTaskLength);
      EXPECT_EQ(batch.Divisor(), 0.0);  // no label
    }
  }
}

TEST(FineTuningTest, HeadsReadClsOfEachSequence) {
  for (const char* const objective : kBothWays) {
    TextSample sample = SampleOf({{10, 11, 12}, {20, 21}, {30}});
    sample.label = 1;
    const Batch batch =
        BatchOf(objective, {.task = ExampleTask::kMultipleChoice, .num_classes = 3}, sample);
    ASSERT_EQ(batch.task_rows.size(), 3u);
    for (const size_t r : {0, 1}) EXPECT_EQ(batch.tokens[batch.task_rows[r]], kClsId) << objective;
    EXPECT_THAT(batch.task_valid, ElementsAre(1, 1, 0));
    EXPECT_EQ(batch.task_labels[0], 1);
    EXPECT_EQ(batch.task_weights[0], 1.0f);
    EXPECT_EQ(batch.Divisor(), 1.0);
    EXPECT_EQ(batch.shape.targets, 0);
  }
}

TEST(FineTuningTest, ScoresAreLabelsOfTheirOwn) {
  TextSample sample = SampleOf({{10, 11, 12}, {20, 21}});
  const TaskConfig task{.task = ExampleTask::kSimilarity, .num_classes = 1};
  EXPECT_EQ(BatchOf("bert_finetuning", task, sample).task_weights[0], 0.0f);
  sample.score = 4.25f;
  const Batch batch = BatchOf("bert_finetuning", task, sample);
  EXPECT_EQ(batch.task_weights[0], 1.0f);
  EXPECT_EQ(batch.task_scores[0], 4.25f);
}

// The question is part 0 and the passage part 1, wherever the system writes them.
TEST(FineTuningTest, AnswersArePartsOfThePassageOrCls) {
  for (const char* const objective : kBothWays) {
    SCOPED_TRACE(objective);
    TextSample sample = SampleOf({{10, 11, 12}, {20, 21, 22, 23, 24}});
    const TaskConfig task{.task = ExampleTask::kSpans};
    sample.label = 1;
    sample.answer_begin = 1;
    sample.answer_end = 4;
    Batch batch = BatchOf(objective, task, sample);
    const auto token = [&](int32_t slot) { return batch.tokens[slot]; };
    EXPECT_EQ(token(batch.task_starts[0]), 21);
    EXPECT_EQ(token(batch.task_ends[0]), 23);
    EXPECT_EQ(token(batch.task_classifiers[0]), kClsId);
    EXPECT_EQ(token(batch.task_passages[0]), 20);
    EXPECT_EQ(batch.task_labels[0], 0);
    std::multiset<int32_t> valid;
    for (int32_t slot = 0; slot < kTaskLength; ++slot) {
      EXPECT_EQ(batch.task_rows[slot], slot);
      if (batch.task_valid[slot] != 0) valid.insert(token(slot));
    }
    EXPECT_EQ(valid, (std::multiset<int32_t>{kClsId, 20, 21, 22, 23, 24}));
    // None, told as such or cut off.
    for (const bool is_cut : {false, true}) {
      sample.label = is_cut ? 1 : 0;
      sample.answer_begin = is_cut ? 12 : -1;
      sample.answer_end = is_cut ? 14 : -1;
      if (is_cut) sample.parts[1].resize(14, 25);
      batch = BatchOf(objective, task, sample);
      EXPECT_EQ(batch.task_starts[0], batch.task_classifiers[0]);
      EXPECT_EQ(batch.task_ends[0], batch.task_classifiers[0]);
      EXPECT_EQ(batch.task_labels[0], 1);
      EXPECT_EQ(batch.task_weights[0], 1.0f);
    }
  }
}

// Words have their tag on their first token; those that are cut off are not there.
TEST(FineTuningTest, WordsAreReadAtTheirFirstTokens) {
  TextSample sample = SampleOf({{10, 11, 12, 13}});
  sample.tags = {2, kNoTag, kUnknownTag, 0};
  const TaskConfig task{.task = ExampleTask::kTokens, .num_classes = 3};
  for (const char* const objective : kBothWays) {
    SCOPED_TRACE(objective);
    const Batch batch = BatchOf(objective, task, sample);
    std::map<int32_t, int32_t> tags;  // by token
    for (int32_t slot = 0; slot < kTaskLength; ++slot) {
      EXPECT_EQ(batch.task_rows[slot], slot);
      if (batch.task_valid[slot] != 0) tags[batch.tokens[slot]] = batch.task_tags[slot];
    }
    EXPECT_EQ(tags, (std::map<int32_t, int32_t>{{10, 2}, {12, kUnknownTag}, {13, 0}}));
    EXPECT_EQ(batch.task_weights[0], 2.0f);
    EXPECT_EQ(batch.Divisor(), 2.0);
  }
  sample.parts[0].resize(20, 14);
  sample.tags.resize(20, 1);
  const Batch cut = BatchOf("bert_finetuning", task, sample);
  EXPECT_EQ(std::count(cut.task_valid.begin(), cut.task_valid.end(), 1), kTaskLength - 2 - 1);
}

TEST(FineTuningTest, LongformersClsAndQuestionsAreGlobal) {
  const auto globals = [](const Batch& batch) {
    return Slots(batch.shape.content_rows, [&](int64_t i) { return batch.row_glob[i] != 0; });
  };
  const auto of_task = [&](const TaskConfig& task, const TextSample& sample) {
    const Batch batch = BatchOf("longformer_finetuning", task, sample);
    const std::vector<int64_t> found = globals(batch);
    EXPECT_THAT(Head(batch.global_slots, found.size()), ElementsAreArray(found));
    // Entries over name other rows.
    EXPECT_EQ(std::set<int32_t>(batch.global_slots.begin(), batch.global_slots.end()).size(),
              batch.global_slots.size());
    EXPECT_EQ(found,
              Slots(batch.shape.content_rows, [&](int64_t i) { return batch.key_glob[i] != 0; }));
    return found;
  };
  const TextSample sample = SampleOf({{10, 11, 12}, {20, 21}});
  EXPECT_THAT(of_task({.num_classes = 2}, sample), ElementsAre(0));
  EXPECT_THAT(of_task({.num_classes = 2}, SampleOf({{10, 11}})), ElementsAre(0));
  TextSample tagged = SampleOf({{10, 11}});
  tagged.tags = {1, kNoTag};
  EXPECT_THAT(of_task({.task = ExampleTask::kTokens, .num_classes = 2}, tagged), ElementsAre(0));
  EXPECT_THAT(of_task({.task = ExampleTask::kEntailment, .num_classes = 2}, sample),
              ElementsAre(0));
  EXPECT_THAT(of_task({.task = ExampleTask::kSpans}, sample), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(of_task({.task = ExampleTask::kMultipleChoice, .num_classes = 2}, sample),
              ElementsAre(0, 6, 7));
}

TEST(FineTuningTest, SettingsThatCannotBeUsedAreRefused) {
  using enum ExampleTask;
  const ModelConfig model = ModelFor("bert_finetuning", {.task = kSpans});
  const TaskConfig tags{.task = kTokens, .num_classes = 3};
  EXPECT_TRUE(MakeObjective("bert_finetuning", ModelFor("bert_finetuning", tags),
                            OneWaySampling(kTaskLength))
                  .ok());
  ExpectRefusals("gpt_finetuning", ModelFor("gpt_finetuning", tags), OneWaySampling(kTaskLength),
                 {{[](auto&, auto&) {}, "do not see what follows them"}});
  ExpectRefusals(
      "bert_finetuning", model, OneWaySampling(kTaskLength),
      {{[](auto& m, auto&) { m.task.num_classes = 2; }, "span_extraction has no classes"},
       {[&](auto& m, auto&) { m.task = tags, m.task.pooler = true; },
        "objective.pooler is for a class"},
       {[](auto& m, auto&) { m.task = {.task = kTokens, .num_classes = 1}; },
        "the number of classes, at least 2"},
       {[](auto& m, auto&) {
          m.task = {.task = kSimilarity, .num_classes = 1, .label_smoothing = 0.1};
        },
        "objective.label_smoothing is for"},
       {[](auto& m, auto&) { m.task = {.num_classes = 0}; }, "objective.num_classes is 0"},
       {[](auto& m, auto&) { m.task = {.task = kMultipleChoice, .num_classes = 1}; },
        "the most choices of an example, at least 2"},
       {[](auto& m, auto&) { m.task = {.num_classes = 2, .answer_class = true}; },
        "objective.answer_class is for span_extraction"},
       {"segments = learned, num_segments = 1", "model.num_segments is 1"},
       {[](auto& m, auto&) { m.task.task = kGeneration; }, "objective.task is generation"}});
}

}  // namespace
}  // namespace anyorder::testing
