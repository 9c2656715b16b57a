#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/objective/unilm/unilm.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

constexpr VocabularyIds kVocabulary = {.separator = 4, .classifier = 3, .mask = 2, .size = 13};

TextSample Example(int64_t source, int64_t target, int64_t step = 0) {
  TextSample sample = {.step = step, .seed = 5, .vocabulary = kVocabulary};
  sample.parts.resize(2);
  for (int64_t i = 0; i < source; ++i) sample.parts[0].push_back(static_cast<int32_t>(5 + i % 4));
  for (int64_t i = 0; i < target; ++i) sample.parts[1].push_back(static_cast<int32_t>(9 + i % 4));
  return sample;
}

class UnilmSeq2seqTest : public LanesTest {
 protected:
  UnilmSeq2seqTest()
      : LanesTest("unilm_seq2seq", SmallLearnedModel(16, 6),
                  With(OneWaySampling(), "num_predict = 16")) {}
};

// The source sees itself; a target the source, those before it and itself (section 2.3).
TEST_F(UnilmSeq2seqTest, TargetsSeeTheSourceAndWhatStandsBeforeThem) {
  for (const auto& [source, target] : {std::pair{4, 6}, {1, 12}, {12, 1}, {3, 2}}) {
    const Batch batch = Build(Example(source, target));
    const int64_t length = source + target + 3;
    const int64_t first = source + 2;
    ExpectSees(batch, [&](int64_t row, int64_t key) {
      return row < length && key < length && (key < first || (row >= first && key <= row));
    });
    for (int64_t slot = 0; slot < length; ++slot)
      EXPECT_EQ(batch.row_seg[slot], slot < first ? 4 : 5);
  }
}

TEST_F(UnilmSeq2seqTest, AShareOfTheTargetIsHiddenAndItsEndMayBe) {
  constexpr int64_t kSteps = 6000;
  constexpr int64_t kTarget = 6;
  int64_t ends = 0, masked = 0, kept = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const TextSample sample = Example(4, kTarget, step);
    const Batch batch = Build(sample);
    const SourceTargetText text = LayOutSourceTarget(sample, sampling_.seq_len);
    std::set<int32_t> rows(batch.readout_rows.begin(), batch.readout_rows.end());
    ASSERT_EQ(rows.size(), batch.readout_rows.size()) << "a scatter may not repeat rows";
    int64_t hidden = 0;
    std::set<int32_t> asked;
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      if (batch.weights[i] == 0) continue;
      ++hidden;
      const int32_t row = batch.readout_rows[i];
      asked.insert(row);
      ASSERT_GE(row, 6);
      ASSERT_LE(row, 6 + kTarget);
      ASSERT_EQ(batch.labels[i], text.tokens[row]);
      ends += row == 6 + kTarget ? 1 : 0;
      masked += batch.tokens[row] == kVocabulary.mask ? 1 : 0;
      kept += batch.tokens[row] == text.tokens[row] ? 1 : 0;
    }
    ASSERT_EQ(hidden, 4);  // round(0.7 * 6)
    for (size_t slot = 0; slot < text.tokens.size(); ++slot) {
      if (asked.count(static_cast<int32_t>(slot)) != 0) continue;
      ASSERT_EQ(batch.tokens[slot], text.tokens[slot]);
    }
  }
  // A random token is the mask, or the true one, once in 13.
  ExpectShare(ends, kSteps, 4.0 / 7);
  ExpectShare(masked, 4 * kSteps, 0.8 + 0.1 / 13);
  ExpectShare(kept, 4 * kSteps, 0.1 + 0.1 / 13);
}

TEST_F(UnilmSeq2seqTest, WhatDoesNotFitIsCutFromTheLongerPart) {
  for (const auto& [source, target, cut_source, cut_target] :
       {std::tuple{4, 6, 4, 6}, {40, 3, 10, 3}, {3, 40, 3, 10}, {40, 40, 7, 6}, {9, 9, 7, 6}}) {
    const TextSample sample = Example(source, target);
    const SourceTargetText text = LayOutSourceTarget(sample, 16);
    EXPECT_EQ(text.source_slots, cut_source + 2);
    ASSERT_EQ(static_cast<int64_t>(text.tokens.size()), cut_source + cut_target + 3);
    EXPECT_EQ(text.tokens.front(), kVocabulary.classifier);
    EXPECT_EQ(text.tokens.back(), kVocabulary.separator);
    EXPECT_EQ(text.tokens[cut_source + 1], kVocabulary.separator);
    for (int64_t i = 0; i < cut_target; ++i)
      EXPECT_EQ(text.tokens[cut_source + 2 + i], sample.parts[1][i]);
    Build(sample);
  }
}

// What generation puts into the slots of a step is what training had there, with a mask in the slot
// that is read.
TEST_F(UnilmSeq2seqTest, GenerationLaysSlotsOutAsTrainingDoes) {
  const TextSample sample = Example(4, 6);
  const Batch batch = Build(sample);
  const SourceTargetText text = LayOutSourceTarget(sample, 16);
  const auto form = Make()->Generation({.classifier = 3, .separator = 4, .mask = 2}).value();
  const std::vector<Slot> prompt = form->PromptSlots(sample.parts[0]);
  ASSERT_EQ(prompt.size(), 6u);
  for (int64_t i = 0; i < 6; ++i) ExpectSlot(prompt[i], batch, i, text.tokens[i]);
  for (int64_t target = 1; target <= 6; ++target) {
    const int32_t newest = sample.parts[1][target - 1];
    const std::vector<Slot> step = form->StepSlots(sample.parts[0], target, newest);
    ASSERT_EQ(step.size(), 2u);
    ExpectSlot(step[0], batch, 6 + target - 1, newest);
    ExpectSlot(step[1], batch, 6 + target, kVocabulary.mask);
  }
  EXPECT_EQ(form->traits().end_token, kVocabulary.separator);
}

TEST_F(UnilmSeq2seqTest, NothingLeaksFromTargetsThatStandLaterOrFromPadding) {
  const Batch batch = Build(Example(4, 7));
  ExpectReads(model_, batch, [&](int64_t slot, int64_t entry) {
    return slot < 14 && (slot < 6 || slot <= batch.readout_rows[entry]);
  });
}

TEST_F(UnilmSeq2seqTest, SettingsThatItCannotUseAreRefused) {
  ExpectRefusals("unilm_seq2seq", model_, sampling_,
                 {{"segments = none", "model.segments must be \"learned\""},
                  {"seq_len = 4", "sampling.seq_len is 4 but must be at least 5"},
                  {"target_mask_prob = 0", "sampling.target_mask_prob is 0 but must be in (0, 1]"},
                  {"mask_token_prob = 1.2", "mask_token_prob is 1.2"},
                  {"num_predict = 0", "sampling.num_predict is 0"}});
}

}  // namespace
}  // namespace anyorder::testing
