#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "core/objective/unilm/unilmv2.h"

namespace anyorder {
namespace {

constexpr int64_t kSize = 64;

// [SOS] S1 [EOS] S2 [EOS]
std::vector<uint8_t> PairOfSegments() {
  std::vector<uint8_t> special(kSize);
  special[0] = special[25] = special[kSize - 1] = 1;
  return special;
}

std::vector<TokenBlock> Draw(const SamplingConfig& rule, uint64_t lane) {
  RandomStream random(7, RandomPurpose::kPairs, 3, lane);
  return DrawBlocks(rule, PairOfSegments(), random);
}

TEST(BlockOrderTest, BlocksAreApartInOneSegmentAndStopAtTheGoal) {
  const SamplingConfig rule;
  for (uint64_t lane = 0; lane < 2000; ++lane) {
    std::vector<uint8_t> taken = PairOfSegments();
    const std::vector<TokenBlock> blocks = Draw(rule, lane);
    int64_t masked = 0;
    for (const TokenBlock& block : blocks) {
      ASSERT_LT(masked, BlockGoal(rule, kSize)) << "a block was drawn after the goal was reached";
      ASSERT_TRUE(block.begin >= 0 && block.end <= kSize);
      const int64_t length = block.end - block.begin;
      ASSERT_TRUE(length == 1 || (length >= 2 && length <= 6)) << length;
      for (int64_t i = block.begin; i < block.end; ++i) {
        ASSERT_EQ(taken[i], 0) << "token " << i << " is special or masked twice";
        taken[i] = 1;
      }
      masked += length;
    }
    EXPECT_GE(masked, BlockGoal(rule, kSize));
    EXPECT_LE(masked, MostInBlocks(rule, kSize));
  }
}

TEST(BlockOrderTest, TheGoalIsTheSmallestNumberThatReachesTheFraction) {
  SamplingConfig rule;
  EXPECT_EQ(BlockGoal(rule, 512), 77);  // 76.8
  EXPECT_EQ(BlockGoal(rule, 20), 3);    // exactly
  EXPECT_EQ(BlockGoal(rule, 21), 4);
  EXPECT_EQ(BlockGoal(rule, 4), 1);
  EXPECT_EQ(MostInBlocks(rule, 512), 82);
  rule.num_predict = 80;
  EXPECT_EQ(MostInBlocks(rule, 512), 80);
  rule.mask_fraction = 0.3;
  EXPECT_EQ(BlockGoal(rule, 10), 3);
}

// What the rule says of the next block, given those before it: every block that fits has the
// probability of its length over those of all that fit.
double ProbabilityOf(const SamplingConfig& rule, const std::vector<uint8_t>& taken, int64_t masked,
                     const std::function<bool(const TokenBlock&)>& event) {
  double all = 0, of_event = 0;
  for (int64_t begin = 0; begin < kSize; ++begin) {
    for (int64_t length = 1; length <= rule.block_max_span && begin + length <= kSize; ++length) {
      if (masked + length > rule.num_predict) break;
      if (taken[begin + length - 1] != 0) break;
      double weight = 0;
      if (length == 1) weight += 1 - rule.block_span_prob;
      if (length >= rule.block_min_span)
        weight += rule.block_span_prob /
                  static_cast<double>(rule.block_max_span - rule.block_min_span + 1);
      all += weight;
      if (event({begin, begin + length})) of_event += weight;
    }
  }
  return of_event / all;
}

// Counts of an event less its probability given the past are a martingale, whose variance is the
// sum of p (1 - p): five deviations are left once in 1.7 million.
void ExpectFrequency(const SamplingConfig& rule,
                     const std::function<bool(const TokenBlock&)>& event) {
  double excess = 0, variance = 0;
  for (uint64_t lane = 0; lane < 3000; ++lane) {
    std::vector<uint8_t> taken = PairOfSegments();
    int64_t masked = 0;
    for (const TokenBlock& block : Draw(rule, lane)) {
      const double p = ProbabilityOf(rule, taken, masked, event);
      excess += (event(block) ? 1 : 0) - p;
      variance += p * (1 - p);
      std::fill(taken.begin() + block.begin, taken.begin() + block.end, 1);
      masked += block.end - block.begin;
    }
  }
  ASSERT_GT(variance, 100);
  EXPECT_LT(std::abs(excess), 5 * std::sqrt(variance)) << excess << " of " << variance;
}

TEST(BlockOrderTest, LengthsAndPlacesAreAsOftenAsTheRuleSays) {
  SamplingConfig other = {.block_span_prob = 0.7, .block_max_span = 4};
  other.num_predict = 11;  // one above the goal
  for (const SamplingConfig& rule : {SamplingConfig{}, other}) {
    for (int64_t length = 1; length <= rule.block_max_span; ++length)
      ExpectFrequency(rule, [&](const TokenBlock& b) { return b.end - b.begin == length; });
    ExpectFrequency(rule, [](const TokenBlock& b) { return b.begin < 25; });
    ExpectFrequency(rule, [](const TokenBlock& b) { return b.begin % 7 == 3; });
  }
}

// Expected tokens, and tokens in spans, from `masked` tokens on until the goal, where there is room
// for every draw.
std::array<double, 2> ExpectedFrom(const SamplingConfig& rule, int64_t masked, int64_t goal) {
  if (masked >= goal) return {0, 0};
  std::array<double, 2> expected = {0, 0};
  for (int64_t length = 1; length <= rule.block_max_span; ++length) {
    const double p = length == 1
                         ? 1 - rule.block_span_prob
                         : rule.block_span_prob /
                               static_cast<double>(rule.block_max_span - rule.block_min_span + 1);
    const std::array<double, 2> rest = ExpectedFrom(rule, masked + length, goal);
    const auto tokens = static_cast<double>(length);
    expected[0] += p * (tokens + rest[0]);
    expected[1] += p * ((length > 1 ? tokens : 0) + rest[1]);
  }
  return expected;
}

// Two draws in five are spans, but 1.6 of the 2.2 tokens of a mean draw lie in spans. In 4,096
// tokens of which some ten are masked, less than 2 % of the draws hit another block or the end,
// which shifts a mean by no more than that.
TEST(BlockOrderTest, MostMaskedTokensLieInSpans) {
  SamplingConfig rule = {.mask_fraction = 0.0025};
  constexpr int64_t kGoal = 11, kTexts = 20000;
  ASSERT_EQ(BlockGoal(rule, 4096), kGoal);
  std::array<double, 2> counted = {0, 0};
  for (uint64_t lane = 0; lane < kTexts; ++lane) {
    RandomStream random(8, RandomPurpose::kPairs, 0, lane);
    for (const TokenBlock& block : DrawBlocks(rule, std::vector<uint8_t>(4096), random)) {
      const auto length = static_cast<double>(block.end - block.begin);
      counted[0] += length;
      if (length > 1) counted[1] += length;
    }
  }
  const std::array<double, 2> expected = ExpectedFrom(rule, 0, kGoal);
  for (int i : {0, 1}) {
    // A number in [0, 16] has a standard deviation of 8 at most.
    const double bound = 5 * 8 / std::sqrt(static_cast<double>(kTexts)) + 0.02 * expected[i];
    EXPECT_NEAR(counted[i] / kTexts, expected[i], bound);
  }
  EXPECT_GT(expected[1] / expected[0], 0.7);
}

TEST(BlockOrderTest, OneStreamGivesOneOrderAndLanesDiffer) {
  EXPECT_EQ(Draw({}, 5), Draw({}, 5));
  EXPECT_NE(Draw({}, 5), Draw({}, 6));
}

TEST(BlockOrderTest, EveryTokenOfAShortTextCanBeMasked) {
  SamplingConfig rule = {.num_predict = 9, .mask_fraction = 1, .block_span_prob = 0.9};
  RandomStream random(7, RandomPurpose::kPairs, 3, 1);
  const std::vector<TokenBlock> blocks = DrawBlocks(rule, std::vector<uint8_t>(9), random);
  EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), int64_t{0},
                            [](int64_t sum, const TokenBlock& b) { return sum + b.end - b.begin; }),
            9);
}

}  // namespace
}  // namespace anyorder
