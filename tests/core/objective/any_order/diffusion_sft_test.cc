// Prompts with answers for masked diffusion: slots, masks, weights and divisors against a rule
// written from LLaDA's description of its fine-tuning.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kSftSlots = 16;
constexpr int32_t kHidden = 2;
constexpr int32_t kEod = 3;
constexpr char kSft[] = "masked_diffusion_sft";

// Lengths of a step's examples: one token each, one that just fits, and parts that are too long.
const std::vector<PartLengths> kStepLengths = {{4, 3},  {1, 1},   {6, 9}, {2, 6},
                                               {40, 2}, {40, 40}, {3, 40}};

std::shared_ptr<Objective> MakeSft(const AnyOrderConfig& config) {
  return MakeObjectiveOrDie(kSft, SmallLearnedModel(kSftSlots), OneWaySampling(kSftSlots, config));
}

// Tokens of the source are 5 to 8, those of the target 9 to 12.
TextSample PromptSample(int64_t lane, int64_t step,
                        const std::vector<PartLengths>& lanes = kStepLengths) {
  TextSample sample = {
      .lane = lane,
      .num_lanes = std::ssize(lanes),
      .step = step,
      .seed = 17,
      .vocabulary = {.mask = kHidden, .size = kSmallVocab, .end_of_document = kEod}};
  sample.parts.resize(2);
  for (int64_t i = 0; i < lanes[lane].source; ++i) sample.parts[0].push_back(5 + (i + lane) % 4);
  for (int64_t i = 0; i < lanes[lane].target; ++i) sample.parts[1].push_back(9 + (i + lane) % 4);
  sample.step_lengths = std::make_shared<const std::vector<PartLengths>>(lanes);
  return sample;
}

// What stays of an example in `kSftSlots` slots, token by token: the source loses its first while
// it has more than half of the slots, then the answer, whose last token is <eod>, its last.
struct Kept {
  int64_t source;
  std::vector<int32_t> answer;
  bool ends = true;
};
Kept KeptOf(const TextSample& sample) {
  Kept kept{std::ssize(sample.parts[0]), sample.parts[1]};
  kept.answer.push_back(kEod);
  while (kept.source + std::ssize(kept.answer) > kSftSlots) {
    if (kept.source > kSftSlots / 2) {
      --kept.source;
    } else {
      kept.answer.pop_back();
      kept.ends = false;
    }
  }
  return kept;
}
int64_t LengthOf(const Kept& kept) { return kept.source + std::ssize(kept.answer); }

// The lane's true tokens where answers are cut to `cut` tokens and padded up to slot `padded`.
std::vector<int32_t> ExpectedTokens(const TextSample& sample, int64_t cut, int64_t padded) {
  Kept kept = KeptOf(sample);
  if (std::ssize(kept.answer) > cut) {
    kept.answer.resize(static_cast<size_t>(cut));
    kept.ends = false;
  }
  std::vector<int32_t> tokens(sample.parts[0].end() - kept.source, sample.parts[0].end());
  tokens.insert(tokens.end(), kept.answer.begin(), kept.answer.end());
  if (kept.ends && padded > std::ssize(tokens)) tokens.resize(static_cast<size_t>(padded), kEod);
  return tokens;
}

// Expects a lane that holds `tokens`, everybody of whom sees everybody, the prompt clean, masks in
// the answer alone, each asked for its true token by slot i, or i - 1; what is no text is a pad.
void ExpectLane(const Batch& batch, const std::vector<int32_t>& tokens, int64_t prompt,
                bool shifted = false) {
  const int64_t length = std::ssize(tokens);
  ExpectDistancesInTable(batch);
  ExpectSees(batch, [&](int64_t row, int64_t key) { return row < length && key < length; });
  ASSERT_EQ(batch.shape.targets, kSftSlots - 1);
  for (int64_t i = 0; i < kSftSlots; ++i) {
    ASSERT_EQ(batch.row_pos[i], i);
    if (i < prompt) {
      ASSERT_EQ(batch.tokens[i], tokens[i]) << "the prompt is touched at " << i;
    }
    if (i == 0) continue;
    const float weight = batch.weights[i - 1];
    ASSERT_EQ(batch.readout_rows[i - 1], shifted ? i - 1 : i);
    if (i >= length || i < prompt) {
      ASSERT_EQ(weight, 0) << i;
    } else {
      ASSERT_EQ(batch.labels[i - 1], tokens[i]);
      ASSERT_EQ(batch.tokens[i], weight > 0 ? kHidden : tokens[i]) << i;
    }
  }
}

TEST(DiffusionSftTest, EveryPaddingHasItsSlots) {
  for (int64_t step = 0; step < 40; ++step) {
    int64_t longest = 0;
    for (int64_t lane = 0; lane < std::ssize(kStepLengths); ++lane)
      longest = std::max(longest, LengthOf(KeptOf(PromptSample(lane, step))));
    ASSERT_EQ(longest, kSftSlots);
    for (const AnswerPadding padding :
         {AnswerPadding::kNone, AnswerPadding::kSeqLen, AnswerPadding::kLongest}) {
      const auto objective = MakeSft({.answer_padding = padding});
      for (int64_t lane = 0; lane < std::ssize(kStepLengths); ++lane) {
        const TextSample sample = PromptSample(lane, step);
        const int64_t end = padding == AnswerPadding::kNone ? 0 : kSftSlots;
        const std::vector<int32_t> tokens = ExpectedTokens(sample, kSftSlots, end);
        const Batch batch = BuildBatch(*objective, {sample});
        ExpectLane(batch, tokens, KeptOf(sample).source);
        EXPECT_EQ(batch.Divisor(), std::ssize(tokens) - KeptOf(sample).source);
      }
    }
  }
}

TEST(DiffusionSftTest, PaddingEndsWithTheLongestExampleOfTheStep) {
  const std::vector<PartLengths> lanes = {{4, 3}, {1, 1}, {2, 7}};
  const auto objective = MakeSft({});
  for (int64_t lane = 0; lane < 3; ++lane) {
    const TextSample sample = PromptSample(lane, 5, lanes);
    const Batch batch = BuildBatch(*objective, {sample});
    ExpectLane(batch, ExpectedTokens(sample, kSftSlots, 10), lanes[lane].source);
    EXPECT_EQ(batch.Divisor(), 10 - lanes[lane].source);
  }
}

// Dream: one of the step's answers says how long all may be, the same for every lane; what is cut
// has no end to be learned.
TEST(DiffusionSftTest, AnswersCanBeCutToTheLengthOfOneOfThem) {
  const auto objective = MakeSft({.answer_padding = AnswerPadding::kRandomCut});
  const std::vector<PartLengths> lanes = {{4, 3}, {1, 1}, {2, 7}, {3, 5}};
  std::set<int64_t> cuts;
  for (int64_t step = 0; step < 100; ++step) {
    std::vector<Batch> batches;
    for (int64_t lane = 0; lane < std::ssize(lanes); ++lane)
      batches.push_back(BuildBatch(*objective, {PromptSample(lane, step, lanes)}));
    std::vector<int64_t> fitting;
    for (const PartLengths& one : lanes) {
      const int64_t cut = one.target + 1;
      int64_t longest = 0;
      for (const PartLengths& lane : lanes)
        longest = std::max(longest, lane.source + std::min(lane.target + 1, cut));
      const auto tokens = [&](int64_t lane) {
        return ExpectedTokens(PromptSample(lane, step, lanes), cut, longest);
      };
      bool fits = true;
      for (int64_t lane = 0; lane < std::ssize(lanes); ++lane)
        fits &= batches[lane].Divisor() == std::ssize(tokens(lane)) - lanes[lane].source;
      if (!fits) continue;
      fitting.push_back(cut);
      for (int64_t lane = 0; lane < std::ssize(lanes); ++lane)
        ExpectLane(batches[lane], tokens(lane), lanes[lane].source);
    }
    ASSERT_EQ(fitting.size(), 1u) << "step " << step;
    cuts.insert(fitting[0]);
  }
  EXPECT_EQ(cuts, (std::set<int64_t>{2, 4, 6, 8}));
}

// The divisors, with exactly n of L tokens masked, so that 1/p is L / n: all tokens, those masked,
// or L of each answer and the number of answers.
TEST(DiffusionSftTest, DivisorsAreThoseOfTheWholeStep) {
  for (const LossDivisor divisor :
       {LossDivisor::kTokens, LossDivisor::kMasked, LossDivisor::kAnswers}) {
    const auto objective = MakeSft({.mask_draw = MaskDraw::kCount, .loss_divisor = divisor});
    double of_microbatches = 0, expected = 0;
    for (int64_t lane = 0; lane < std::ssize(kStepLengths); ++lane) {
      const TextSample sample = PromptSample(lane, 2);
      const Batch batch = BuildBatch(*objective, {sample});
      const double length = kSftSlots - static_cast<double>(KeptOf(sample).source);
      const auto masked =
          static_cast<double>(std::count(batch.tokens.begin(), batch.tokens.end(), kHidden));
      const double by = divisor == LossDivisor::kAnswers ? length : 1;
      for (const float weight : batch.weights) {
        if (weight == 0) continue;
        EXPECT_FLOAT_EQ(weight, static_cast<float>(length / masked / by));
      }
      of_microbatches += batch.Divisor();
      expected += divisor == LossDivisor::kTokens   ? length
                  : divisor == LossDivisor::kMasked ? masked
                                                    : 1;
    }
    EXPECT_EQ(of_microbatches, expected);
    std::vector<TextSample> all;
    for (int64_t lane = 0; lane < std::ssize(kStepLengths); ++lane)
      all.push_back(PromptSample(lane, 2));
    const Batch whole = BuildBatch(*objective, all);
    EXPECT_EQ(whole.Divisor(), expected);
    // A lane is the same in any microbatch.
    for (int64_t lane = 0; lane < std::ssize(kStepLengths); ++lane) {
      const Batch alone = BuildBatch(*objective, {all[lane]});
      EXPECT_TRUE(std::equal(alone.weights.begin(), alone.weights.end(),
                             whole.weights.begin() + lane * (kSftSlots - 1)));
      EXPECT_TRUE(std::equal(alone.tokens.begin(), alone.tokens.end(),
                             whole.tokens.begin() + lane * kSftSlots));
    }
  }
}

// Padding is masked and asked for as often as any token of the answer: by the mean rate 1/2, and
// weights 1/p have the mean 1 at each of them.
TEST(DiffusionSftTest, PaddingIsInTheLossLikeTheAnswer) {
  constexpr int64_t kSteps = 4000;
  const auto objective = MakeSft(
      {.mask_rate_min = 0.2, .stratified_rates = false, .answer_padding = AnswerPadding::kSeqLen});
  std::vector<int64_t> masked(kSftSlots, 0);
  std::vector<double> weights(kSftSlots, 0);
  for (int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = BuildBatch(*objective, {PromptSample(0, step)});
    for (int64_t i = 1; i < kSftSlots; ++i) {
      masked[i] += batch.tokens[i] == kHidden ? 1 : 0;
      weights[i] += batch.weights[i - 1];
    }
  }
  for (int64_t i = 4; i < kSftSlots; ++i) {
    ExpectShare(masked[i], kSteps, 0.6);
    // E 1/p over [0.2, 1] is 2.01, so that one weight has a variance of 1.01.
    EXPECT_NEAR(weights[i] / kSteps, 1, 5 * std::sqrt(1.02 / kSteps)) << i;
  }
}

// Dream: the slot before predicts, the prompt's last one the first of the answer; CART counts the
// prompt among the unmasked.
TEST(DiffusionSftTest, TheReadoutCanBeShiftedAndWeighedByContext) {
  for (int64_t lane = 0; lane < std::ssize(kStepLengths); ++lane) {
    const TextSample sample = PromptSample(lane, 9);
    const Batch batch =
        BuildBatch(*MakeSft({.loss_weight = LossWeight::kCart, .shifted_readout = true}), {sample});
    const std::vector<int32_t> tokens = ExpectedTokens(sample, kSftSlots, kSftSlots);
    ExpectLane(batch, tokens, KeptOf(sample).source, true);
    ExpectCartWeights(batch, kHidden, 1, [](int64_t, int64_t) { return true; });
  }
}

TEST(DiffusionSftTest, ItsNumberSaysWhatIsCounted) {
  const auto says = [](const AnyOrderConfig& config) { return MakeSft(config)->quantity(); };
  constexpr char kBound[] =
      "upper bound of the NLL in nats per token, of answers given their prompts";
  EXPECT_EQ(says({}), absl::StrCat(kBound, ", with <eod> up to the batch's longest"));
  EXPECT_EQ(says({.loss_divisor = LossDivisor::kAnswers, .answer_padding = AnswerPadding::kNone}),
            absl::StrCat(kBound, ", mean over answers, one <eod> after each"));
  EXPECT_EQ(says({.answer_padding = AnswerPadding::kSeqLen}),
            absl::StrCat(kBound, ", with <eod> up to seq_len"));
  EXPECT_EQ(says({.answer_padding = AnswerPadding::kRandomCut}),
            absl::StrCat(kBound, ", cut to the length of one of the batch"));
  EXPECT_THAT(says({.loss_divisor = LossDivisor::kMasked}), ::testing::HasSubstr("(no bound)"));
  EXPECT_EQ(MakeSft({.answer_padding = AnswerPadding::kNone})->evaluation_note(), "");
  EXPECT_THAT(MakeSft({})->evaluation_note(), ::testing::HasSubstr("answer_padding=none"));
}

TEST(DiffusionSftTest, WhatItCannotUseIsRefused) {
  const SamplingConfig sampling = OneWaySampling(kSftSlots);
  ExpectRefusals(kSft, SmallLearnedModel(kSftSlots), sampling,
                 {{"seq_len = 1", "seq_len is 1 but must be at least 2"},
                  {"mask_rate_min = 0", "mask_rate_min=0"}});
  for (const char* const name : {"masked_diffusion", "block_diffusion"}) {
    ExpectRefusals(name, SmallLearnedModel(kSftSlots), sampling,
                   {{"loss_divisor = answers", "windows of text have none"}});
  }
}

}  // namespace
}  // namespace anyorder::testing
