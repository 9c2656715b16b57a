#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/objective/unilm/unilmv2.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

constexpr int32_t kEnd = 2, kStart = 3, kBlank = 4;
constexpr int64_t kVocabularySize = 40;

class Seq2seqTest : public LanesTest {
 protected:
  Seq2seqTest()
      : LanesTest("unilmv2_seq2seq", SmallLearnedModel(12, 2),
                  With(OneWaySampling(12), "num_predict = 5, target_replace_prob = 0")) {}
  // Tokens 10, 11, ... and 30, 31, ...
  static TextSample Sample(int64_t source_len, int64_t target_len, int64_t lane = 2) {
    TextSample sample = {
        .lane = lane,
        .seed = 99,
        .vocabulary = {
            .separator = kEnd, .classifier = kStart, .mask = kBlank, .size = kVocabularySize}};
    sample.parts.resize(2);
    for (int64_t i = 0; i < source_len; ++i)
      sample.parts[0].push_back(static_cast<int32_t>(10 + i % 20));
    for (int64_t i = 0; i < target_len; ++i)
      sample.parts[1].push_back(static_cast<int32_t>(30 + i % 10));
    return sample;
  }
};

// The authors' convention: an integer a slot, 0 the source, t a target token, -t its pseudo mask. A
// row w sees a key v when v >= 0 and v <= w, or, of a pseudo mask, v >= 0 and v < -w, or the same
// integer.
bool ReleasedRule(int row, int key) {
  if (row >= 0) return key >= 0 && key <= row;
  return (key >= 0 && key < -row) || key == row;
}

TEST_F(Seq2seqTest, TheMaskIsThatOfTheReleasedFineTuningCode) {
  for (const auto& [source_len, target_len] : {std::pair{3, 2}, {1, 4}, {5, 1}, {20, 3}, {4, 9}}) {
    const Batch batch = Build(Sample(source_len, target_len));
    const int64_t target = std::min(target_len + 1, 5);
    const int64_t source = std::min<int64_t>(source_len, 12 - 2 - target) + 2;
    constexpr int kPadding = 1000;
    std::vector<int> kind(17, kPadding);
    std::vector<int64_t> pos(17);
    for (int64_t i = 0; i < source + target; ++i) {
      kind[i] = i < source ? 0 : static_cast<int>(i - source + 1);
      pos[i] = i;
    }
    for (int64_t t = 0; t < target; ++t) {
      kind[12 + t] = -static_cast<int>(t + 1);
      pos[12 + t] = source + t;
    }
    ASSERT_EQ(batch.shape.num_rows(), 17);
    ExpectSees(batch, [&](int64_t row, int64_t key) {
      const bool both = kind[row] != kPadding && kind[key] != kPadding;
      return both && ReleasedRule(kind[row], kind[key]);
    });
    for (int64_t row = 0; row < 17; ++row) {
      if (kind[row] == kPadding) continue;
      EXPECT_EQ(batch.row_pos[row], pos[row]);
      EXPECT_EQ(batch.row_seg[row], kind[row] == 0 ? 0 : 1);
      EXPECT_EQ(batch.key_pos[row], batch.row_pos[row]);
      EXPECT_EQ(batch.key_seg[row], batch.row_seg[row]);
    }
  }
}

TEST_F(Seq2seqTest, EachTargetTokenAndTheEndAreAskedForAtTheirPseudoMasks) {
  const Batch batch = Build(Sample(3, 2));
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{kStart, 10, 11, 12, kEnd, 30, 31, kEnd, 0, 0, 0, 0,
                                                kBlank, kBlank, kBlank, 0, 0}));
  EXPECT_EQ(batch.readout_rows, (std::vector<int32_t>{12, 13, 14, 15, 16}));
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{30, 31, kEnd, 0, 0}));
  EXPECT_EQ(batch.weights, (std::vector<float>{1, 1, 1, 0, 0}));
}

TEST_F(Seq2seqTest, LongTextsAreCutAtTheirEndsAndStillEnd) {
  const Batch batch = Build(Sample(20, 9));
  EXPECT_EQ(std::vector<int32_t>(batch.tokens.begin(), batch.tokens.begin() + 12),
            (std::vector<int32_t>{kStart, 10, 11, 12, 13, 14, kEnd, 30, 31, 32, 33, kEnd}));
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{30, 31, 32, 33, kEnd}));
}

TEST_F(Seq2seqTest, TargetTokensAreReplacedAsOftenAsAskedAndTheQuestionStays) {
  sampling_.target_replace_prob = 0.5;
  int64_t masks = 0, other = 0, all = 0;
  for (int64_t lane = 0; lane < 3000; ++lane) {
    const Batch batch = Build(Sample(3, 3, lane));
    for (int64_t t = 0; t < 4; ++t) {
      const int32_t truth = t < 3 ? static_cast<int32_t>(30 + t) : kEnd;
      ASSERT_EQ(batch.labels[t], truth);
      ASSERT_EQ(batch.tokens[12 + t], kBlank);
      const int32_t input = batch.tokens[5 + t];
      ++all;
      masks += input == kBlank;
      other += input != kBlank && input != truth;
    }
    for (int64_t slot = 0; slot < 5; ++slot)
      ASSERT_EQ(batch.tokens[slot], slot == 0 ? kStart : slot == 4 ? kEnd : 9 + slot);
  }
  // A random id is the mask, or the token itself, once in the vocabulary each.
  ExpectShare(masks, all, 0.5 * (0.8 + 0.1 / kVocabularySize));
  ExpectShare(other, all, 0.5 * 0.1 * (1 - 2.0 / kVocabularySize));
}

// What is generated reads the very slots that were trained on: prompt, newest token and [P] of each
// step.
TEST_F(Seq2seqTest, GenerationHasTheSlotsOfTraining) {
  const TextSample sample = Sample(4, 3);
  const Batch batch = Build(sample);
  const GenerationTokens tokens = {.classifier = kStart, .separator = kEnd, .mask = kBlank};
  const std::unique_ptr<GenerationForm> form = Make()->Generation(tokens).value();
  EXPECT_EQ(form->traits().end_token, kEnd);
  const std::vector<Slot> prompt = form->PromptSlots(sample.parts[0]);
  ASSERT_EQ(prompt.size(), 6u);
  for (int64_t i = 0; i < 6; ++i) ExpectSlot(prompt[i], batch, i, batch.tokens[i]);
  for (int64_t t = 0; t < 4; ++t) {
    const int32_t newest = t == 0 ? 0 : sample.parts[1][t - 1];
    const std::vector<Slot> step = form->StepSlots(sample.parts[0], t, newest);
    ASSERT_EQ(step.size(), 2u);
    if (t > 0) ExpectSlot(step[0], batch, 6 + t - 1, batch.tokens[6 + t - 1]);
    ExpectSlot(step[1], batch, 12 + t, batch.tokens[12 + t]);
  }
}

// Teacher forcing in one pass: the state that predicts target t depends on the targets before it,
// and on no later one.
TEST_F(Seq2seqTest, ALossDependsOnEarlierTargetsOnly) {
  const Batch batch = Build(Sample(3, 4));
  ModelRunner runner(model_, kVocabularySize, batch.shape);
  const std::vector<double> weights = InitialWeights(model_, kVocabularySize, 41);
  const std::vector<float> losses = runner.Run(batch, weights, {}, false).losses;
  for (int64_t t = 0; t < 5; ++t) {
    Batch other = batch;
    other.tokens[5 + t] = 20;
    const std::vector<float> after = runner.Run(other, weights, {}, false).losses;
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(after[i] != losses[i], i > t) << i << " after " << t;
  }
}

TEST_F(Seq2seqTest, UnusableSettingsAreRefused) {
  ExpectRefusals("unilmv2_seq2seq", model_, sampling_,
                 {{"num_predict = 10", "num_predict"},
                  {"num_predict = 1", "num_predict"},
                  {"target_replace_prob = 1.5", "is 1.5"},
                  {"mask_token_prob = 0.95", "at most 1 together"},
                  {"max_positions = 11", "max_positions is 11"},
                  {[](auto& m, auto&) { m.next_sentence_head = true; }, "next_sentence"}});
}

}  // namespace
}  // namespace anyorder::testing
