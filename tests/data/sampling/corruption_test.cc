#include "data/sampling/corruption.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace anyorder::data {
namespace {

constexpr int32_t kMask = 6;

RandomStream Stream(uint64_t seed, RandomPurpose purpose = RandomPurpose::kCorruption) {
  return RandomStream(seed, purpose, 0, 0);
}

// Five standard deviations of a count of `trials` independent tries: missed by chance once in 1.7
// million counts.
double Spread(double trials, double probability) {
  return 5 * std::sqrt(trials * probability * (1 - probability));
}

// Random word starts, with functional tokens at `functional_at`.
struct Text {
  std::vector<uint8_t> starts;
  std::vector<uint8_t> functional;
};
Text MakeText(int64_t size, const std::vector<int64_t>& functional_at, uint64_t seed) {
  RandomStream random = Stream(seed, RandomPurpose::kPrep);
  Text text;
  for (int64_t i = 0; i < size; ++i) text.starts.push_back(random.Below(2) == 0 ? 1 : 0);
  text.functional.assign(size, 0);
  for (const int64_t i : functional_at) text.functional[i] = 1;
  return text;
}

int64_t Count(const std::vector<uint8_t>& mask) {
  return std::accumulate(mask.begin(), mask.end(), int64_t{0});
}

TEST(DrawUnitMaskTest, SingleTokensAreExactlyTheGoalAndNeverFunctional) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Text text = MakeText(40, {11, 38, 39}, seed);
    for (const int64_t goal : {0, 1, 6, 36, 37}) {
      RandomStream random = Stream(seed, RandomPurpose::kSpans);
      const std::vector<uint8_t> mask =
          DrawUnitMask(text.starts, text.functional, SpanKind::kSingle, goal, random);
      ASSERT_EQ(Count(mask), goal);
      for (const int64_t i : {11, 38, 39}) ASSERT_EQ(mask[i], 0);
    }
  }
}

TEST(DrawUnitMaskTest, EveryTokenIsAsLikelyATargetAsAnyOther) {
  const Text text = MakeText(40, {11, 38, 39}, 1);
  constexpr int kTrials = 40000;
  std::vector<int64_t> hits(40);
  RandomStream random = Stream(2, RandomPurpose::kSpans);
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::vector<uint8_t> mask =
        DrawUnitMask(text.starts, text.functional, SpanKind::kSingle, 6, random);
    for (size_t i = 0; i < mask.size(); ++i) hits[i] += mask[i];
  }
  const double probability = 6.0 / 37;
  for (size_t i = 0; i < hits.size(); ++i) {
    if (text.functional[i] != 0) continue;
    EXPECT_NEAR(static_cast<double>(hits[i]), kTrials * probability, Spread(kTrials, probability));
  }
}

TEST(DrawUnitMaskTest, WordsAreTakenWholeAndNoneThatFitsIsLeftOut) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Text text = MakeText(64, {30, 62, 63}, seed);
    const auto goal = static_cast<int64_t>(1 + seed % 20);
    RandomStream random = Stream(seed, RandomPurpose::kSpans);
    const std::vector<uint8_t> mask =
        DrawUnitMask(text.starts, text.functional, SpanKind::kWord, goal, random);
    const int64_t left = goal - Count(mask);
    ASSERT_GE(left, 0);
    for (int64_t begin = 0; begin < 64;) {
      int64_t end = begin + 1;
      while (end < 64 && text.functional[begin] == 0 && text.functional[end] == 0 &&
             text.starts[end] == 0)
        ++end;
      for (int64_t i = begin; i < end; ++i)
        ASSERT_EQ(mask[i], mask[begin]) << "a word is split at " << i;
      if (text.functional[begin] != 0) {
        ASSERT_EQ(mask[begin], 0);
      } else if (mask[begin] == 0) {
        ASSERT_GT(end - begin, left) << "a word that fits was left out at " << begin;
      }
      begin = end;
    }
  }
}

TEST(CorruptTokensTest, EightTenthsAreMaskedOneTenthRandomOneTenthKept) {
  constexpr int64_t kVocab = 50;
  constexpr int64_t kTargets = 400000;
  constexpr int32_t kToken = 20;
  RandomStream random = Stream(3);
  const std::vector<int32_t> tokens(kTargets, kToken);
  const std::vector<uint8_t> all(kTargets, 1);
  std::vector<int64_t> counts(kVocab);
  for (const int32_t id : CorruptTokens(tokens, all, SamplingConfig(), kMask, kVocab, random)) {
    ASSERT_TRUE(id >= 0 && id < kVocab);
    ++counts[id];
  }
  // Each id, special ones too, gets its share of the random tenth; the mask and the token itself on
  // top of their own.
  for (int32_t id = 0; id < kVocab; ++id) {
    const double probability = 0.1 / kVocab + (id == kMask ? 0.8 : 0) + (id == kToken ? 0.1 : 0);
    EXPECT_NEAR(static_cast<double>(counts[id]), kTargets * probability,
                Spread(kTargets, probability))
        << id;
  }
}

TEST(CorruptTokensTest, OnlyTargetsChangeAndTheSharesAreThoseAskedFor) {
  std::vector<int32_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 100);
  std::vector<uint8_t> targets(1000);
  for (size_t i = 0; i < targets.size(); i += 3) targets[i] = 1;
  SamplingConfig config;
  config.mask_token_prob = 1;
  config.random_token_prob = 0;
  RandomStream random = Stream(4);
  const std::vector<int32_t> masked = CorruptTokens(tokens, targets, config, kMask, 2000, random);
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_EQ(masked[i], targets[i] != 0 ? kMask : tokens[i]);
  config.mask_token_prob = 0;
  EXPECT_EQ(CorruptTokens(tokens, targets, config, kMask, 2000, random), tokens);
}

}  // namespace
}  // namespace anyorder::data
