// Samples of denoising objectives: BERT's targets and corruption on XLNet's text.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "data/sampling/sampler.h"
#include "tests/data/sampling/memory_text.h"

namespace anyorder::data {
namespace {

SamplingConfig Config(int64_t seq_len, SpanKind spans) {
  SamplingConfig config = PairConfig(seq_len, SamplingConfig().num_predict, seq_len / 2);
  config.max_span = 3;
  config.spans = spans;
  return config;
}

std::unique_ptr<Sampler> MakeMasked(const MemoryText& text, const SamplingConfig& config,
                                    SampleKind kind = SampleKind::kMaskedPairs) {
  return MakeSampler(text, config, 4, kind);
}

// What makes a comparison of objectives one of objectives alone.
TEST(MaskedSamplerTest, TextAndSpansAreThoseOfThePermutationObjectiveWithTheSameCount) {
  const MemoryText text = MemoryText::Random(20000, 12, 1);
  SamplingConfig config = Config(128, SpanKind::kSubword);
  config.num_predict = 19;
  const auto masked = MakeMasked(text, config);
  config.functional_targets = false;
  const auto plain = MakeMasked(text, config, SampleKind::kPairs);
  EXPECT_EQ(masked->steps_per_epoch(), plain->steps_per_epoch());
  ForEachSample(*masked, 4, 20, [&](const TextSample& sample) {
    const TextSample other = Take(*plain, sample.lane, sample.step);
    ASSERT_EQ(sample.tokens, other.tokens);
    ASSERT_EQ(sample.segment, other.segment);
    ASSERT_EQ(sample.is_functional, other.is_functional);
    ASSERT_EQ(sample.is_masked, other.is_masked);
    ASSERT_EQ(sample.b_follows_a, other.b_follows_a);
    ASSERT_EQ(sample.backward, other.backward);
    ASSERT_TRUE(sample.order.empty());
    ASSERT_TRUE(other.input_tokens.empty());
  });
}

TEST(MaskedSamplerTest, CountIsExactSepAndClsAreNoTargetsAndTheRestIsReadAsItIs) {
  const MemoryText text = MemoryText::Random(40000, 12, 2);
  for (const auto& [seq_len, targets] : {std::pair{512, 77}, {128, 19}, {10, 2}}) {
    for (const SpanKind spans : {SpanKind::kSingle, SpanKind::kSubword, SpanKind::kWord}) {
      const auto sampler = MakeMasked(text, Config(seq_len, spans));
      ForEachSample(*sampler, 4, 30, [&, most = targets](const TextSample& sample) {
        const int64_t count = Count(sample.is_masked);
        ASSERT_TRUE(count == most || (spans == SpanKind::kWord && count < most)) << count;
        for (size_t i = 0; i < sample.tokens.size(); ++i) {
          if (sample.is_masked[i] == 0) {
            ASSERT_EQ(sample.input_tokens[i], sample.tokens[i]);
          } else {
            ASSERT_EQ(sample.is_functional[i], 0);
          }
        }
      });
    }
  }
}

// In reading order, so that a backward lane masks the words of its text and not what would be words
// in its mirror image.
TEST(MaskedSamplerTest, WordsAreMaskedWholeInBothDirections) {
  const MemoryText text = MemoryText::Random(40000, 12, 4);
  const auto sampler = MakeMasked(text, Config(128, SpanKind::kWord));
  int64_t joined = 0;
  ForEachSample(*sampler, 4, 100, [&](TextSample sample) {
    if (sample.backward) {
      std::reverse(sample.tokens.begin(), sample.tokens.end());
      std::reverse(sample.is_masked.begin(), sample.is_masked.end());
      std::reverse(sample.is_functional.begin(), sample.is_functional.end());
    }
    for (size_t i = 1; i < sample.tokens.size(); ++i) {
      if (sample.is_functional[i] != 0 || sample.is_functional[i - 1] != 0) continue;
      const bool goes_on = text.starts[sample.tokens[i] - MemoryText::kFirstId] == 0;
      if (!goes_on) continue;
      ASSERT_EQ(sample.is_masked[i], sample.is_masked[i - 1])
          << "lane " << sample.lane << " slot " << i;
      joined += sample.is_masked[i];
    }
  });
  EXPECT_GT(joined, 1000) << "the test saw hardly any word of several pieces";
}

// Another value here means that every denoising run changes: an order of draws was changed.
TEST(MaskedSamplerTest, GoldenSample) {
  const MemoryText text = MemoryText::Random(400, 6, 7);
  SamplingConfig config = Config(24, SpanKind::kSingle);
  config.mask_fraction = 0.5;
  const TextSample sample = Take(*MakeMasked(text, config), 2, 5);
  EXPECT_EQ(sample.tokens,
            (std::vector<int32_t>{239, 238, 237, 236, 235, 234, 233, 232, 231, 230, 229, 228,
                                  227, 226, 225, 224, 223, 4,   153, 152, 151, 150, 4,   3}));
  EXPECT_EQ(sample.input_tokens,
            (std::vector<int32_t>{6, 6,   237, 325, 235, 234, 6, 6,   6,   230, 229, 228,
                                  6, 226, 225, 237, 6,   4,   6, 152, 151, 6,   4,   3}));
  std::vector<int32_t> targets;
  for (int32_t i = 0; i < 24; ++i) {
    if (sample.is_masked[i] != 0) targets.push_back(i);
  }
  EXPECT_EQ(targets, (std::vector<int32_t>{0, 1, 3, 6, 7, 8, 12, 14, 15, 16, 18, 21}));
}

}  // namespace
}  // namespace anyorder::data
