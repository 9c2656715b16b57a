// Samples in modes, short samples, and pairs as BERT makes them.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>

#include "data/sampling/lane_streams.h"
#include "data/sampling/sampler.h"
#include "tests/data/sampling/memory_text.h"

namespace anyorder::data {
namespace {

constexpr int64_t kSeqLen = 64;
constexpr int64_t kLanes = 4;

SamplingConfig Config() {
  return {.seq_len = kSeqLen,
          .reuse_len = kSeqLen / 2,
          .spans = SpanKind::kNgram,
          .bidirectional = false};
}

std::unique_ptr<Sampler> MakeModes(const MemoryText& text, const SamplingConfig& config,
                                   SampleKind kind = SampleKind::kModePairs) {
  return MakeSampler(text, config, kLanes, kind);
}

// Tokens of MemoryText follow each other as numbers do.
bool IsContiguous(const TextSample& sample, size_t begin, size_t end) {
  for (size_t i = begin + 1; i < end; ++i) {
    if (sample.tokens[i] != sample.tokens[i - 1] + 1) return false;
  }
  return true;
}

size_t FirstSeparator(const TextSample& sample) {
  size_t i = 0;
  while (sample.is_functional[i] == 0) ++i;
  return i;
}

TEST(ModeSamplerTest, ModesComeInTheirShares) {
  const MemoryText text = MemoryText::Random(20000, 12, 1);
  SamplingConfig config = Config();
  for (const std::array<double, 4>& shares :
       {std::array{1.0 / 3, 1.0 / 3, 1.0 / 6, 1.0 / 6}, {0.1, 0.0, 0.2, 0.7}}) {
    config.bidirectional_share = shares[0];
    config.seq2seq_share = shares[1];
    config.left_to_right_share = shares[2];
    config.right_to_left_share = shares[3];
    const auto sampler = MakeModes(text, config);
    std::array<int64_t, 4> counts{};
    constexpr int64_t kSteps = 4000;
    ForEachSample(*sampler, kLanes, kSteps,
                  [&](const TextSample& sample) { ++counts[static_cast<int>(sample.mode)]; });
    constexpr double kTrials = kLanes * kSteps;
    for (int mode = 0; mode < 4; ++mode) {
      EXPECT_NEAR(static_cast<double>(counts[mode]), kTrials * shares[mode],
                  Spread(kTrials, shares[mode]))
          << mode;
    }
  }
}

TEST(ModeSamplerTest, EveryModeHasItsText) {
  const MemoryText text = MemoryText::Random(20000, 12, 2);
  const auto sampler = MakeModes(text, Config());
  int64_t random_b = 0, pairs = 0, source_tokens = 0, sources = 0;
  ForEachSample(*sampler, kLanes, 300, [&](const TextSample& sample) {
    ASSERT_EQ(sample.padding, 0);
    ASSERT_EQ(sample.tokens[kSeqLen - 1], MemoryText::kClassId);
    ASSERT_EQ(sample.tokens[kSeqLen - 2], MemoryText::kSeparatorId);
    ASSERT_EQ(Count(sample.is_masked), 10);  // round(0.15 * 64)
    const size_t first = FirstSeparator(sample);
    ASSERT_TRUE(IsContiguous(sample, 0, first));
    if (sample.mode == TextMode::kLeftToRight || sample.mode == TextMode::kRightToLeft) {
      ASSERT_EQ(first, static_cast<size_t>(kSeqLen - 2));
      ASSERT_EQ(Count(sample.is_functional), 2);
      ASSERT_FALSE(sample.b_follows_a);
      return;
    }
    ASSERT_EQ(Count(sample.is_functional), 3);
    ASSERT_TRUE(IsContiguous(sample, first + 1, kSeqLen - 2));
    for (size_t i = 0; i < static_cast<size_t>(kSeqLen - 1); ++i)
      ASSERT_EQ(sample.segment[i], i <= first ? 0 : 1);
    if (sample.mode == TextMode::kSeq2seq) {
      // The window's text, divided at a sentence end.
      ASSERT_TRUE(sample.b_follows_a);
      ASSERT_EQ(sample.tokens[first + 1], sample.tokens[first - 1] + 1);
      const int64_t at = sample.tokens[first + 1] - MemoryText::kFirstId;
      ASSERT_NE(text.flags[at], text.flags[at - 1]);
      source_tokens += static_cast<int64_t>(first);
      ++sources;
    } else {
      ++pairs;
      random_b += sample.b_follows_a ? 0 : 1;
    }
  });
  ASSERT_GT(sources, 300);
  EXPECT_NEAR(static_cast<double>(source_tokens) / static_cast<double>(sources), kSeqLen / 2.0, 5);
  EXPECT_NEAR(static_cast<double>(random_b), static_cast<double>(pairs) / 2,
              2.5 * std::sqrt(static_cast<double>(pairs)));
}

// BERT: one sample in ten, its two segments together 2 to seq_len - 3 tokens long, all lengths
// alike.
TEST(ShortSampleTest, OneInTenIsShorterAndAllLengthsAreAlike) {
  const MemoryText text = MemoryText::Random(20000, 12, 3);
  SamplingConfig config = Config();
  config.short_sequence_prob = 0.1;
  for (const SampleKind kind : {SampleKind::kMaskedPairs, SampleKind::kModePairs}) {
    const auto sampler = MakeModes(text, config, kind);
    constexpr int64_t kSteps = 5000;
    int64_t padded = 0, tokens = 0;
    ForEachSample(*sampler, kLanes, kSteps, [&](const TextSample& sample) {
      const int64_t length = kSeqLen - sample.padding;
      ASSERT_GE(length, 5);
      ASSERT_EQ(sample.tokens[length - 1], MemoryText::kClassId);
      for (int64_t i = length; i < kSeqLen; ++i) {
        ASSERT_EQ(sample.is_masked[i], 0);
        ASSERT_EQ(sample.is_functional[i], 1);
        ASSERT_EQ(sample.input_tokens[i], sample.tokens[i]);
      }
      ASSERT_EQ(Count(sample.is_masked), config.MaskedTargets(length));
      padded += sample.padding > 0 ? 1 : 0;
      tokens += sample.padding > 0 ? length - 3 : 0;
    });
    // 60 lengths, the longest of which needs no padding.
    constexpr double kTrials = kLanes * kSteps;
    const double share = 0.1 * 59 / 60;
    EXPECT_NEAR(static_cast<double>(padded), kTrials * share, Spread(kTrials, share));
    // Uniform on 2..60: mean 31, variance (59 * 59 - 1) / 12.
    const auto count = static_cast<double>(padded);
    EXPECT_NEAR(static_cast<double>(tokens) / count, 31, 5 * std::sqrt(290 / count));
  }
}

TEST(ShortSampleTest, OldSamplesStayAsTheyWere) {
  const MemoryText text = MemoryText::Random(20000, 12, 4);
  SamplingConfig config = Config();
  config.spans = SpanKind::kSingle;
  const auto plain = MakeModes(text, config, SampleKind::kMaskedPairs);
  config.short_sequence_prob = 0.5;
  const auto mixed = MakeModes(text, config, SampleKind::kMaskedPairs);
  int64_t equal = 0;
  for (int64_t step = 0; step < 40; ++step) {
    const TextSample sample = Take(*mixed, 1, step);
    const bool same = SampleDigest(sample) == SampleDigest(Take(*plain, 1, step));
    EXPECT_EQ(same, sample.padding == 0);
    equal += same ? 1 : 0;
  }
  EXPECT_GT(equal, 5);
  EXPECT_LT(equal, 35);
}

// Token by token from the longer segment, at either end with equal chance: BERT's
// truncate_seq_pair.
TEST(BertPairsTest, WhatIsTooLongIsCutAtBothEnds) {
  const MemoryText text = MemoryText::Random(20000, 12, 5);
  const LaneText lane(text, LaneStream{.begin = 0, .length = text.num_tokens(), .backward = false});
  constexpr int64_t kTotal = 61;
  int64_t front = 0, back = 0;
  for (int64_t draw = 0; draw < 4000; ++draw) {
    RandomStream random(5, RandomPurpose::kPairs, draw, 0);
    RandomStream again(5, RandomPurpose::kPairs, draw, 0);
    const auto pair = DrawSegmentPair(lane, 3 * draw, kTotal, random, PairStyle::kBert);
    const auto plain = DrawSegmentPair(lane, 3 * draw, kTotal, again);
    ASSERT_TRUE(pair.ok() && plain.ok());
    // The same pair before the cut, so the same lengths after it.
    ASSERT_EQ(pair->a_end - pair->a_begin, plain->a_end - plain->a_begin);
    ASSERT_EQ(pair->b_end - pair->b_begin, plain->b_end - plain->b_begin);
    ASSERT_EQ(pair->b_follows_a, plain->b_follows_a);
    // Plain pairs are cut on the right only: their begins are those before the cut.
    front += pair->a_begin - plain->a_begin + pair->b_begin - plain->b_begin;
    back += pair->a_end < plain->a_end || pair->b_end < plain->b_end ? 1 : 0;
    ASSERT_GE(pair->a_begin, plain->a_begin);
    ASSERT_GE(pair->b_begin, plain->b_begin);
  }
  EXPECT_GT(front, 4000);
  EXPECT_EQ(back, 0) << "more was cut on the right than when all is cut there";
}

TEST(BertPairsTest, TheFirstSegmentMayBeShorterThanTheReusePart) {
  const MemoryText text = MemoryText::Random(20000, 6, 6);
  SamplingConfig config = Config();
  config.pairs = PairStyle::kBert;
  const auto sampler = MakeModes(text, config, SampleKind::kMaskedPairs);
  int64_t shorter = 0;
  for (int64_t step = 0; step < 200; ++step)
    shorter += FirstSeparator(Take(*sampler, 1, step)) < static_cast<size_t>(kSeqLen / 2) ? 1 : 0;
  EXPECT_GT(shorter, 40);
}

}  // namespace
}  // namespace anyorder::data
