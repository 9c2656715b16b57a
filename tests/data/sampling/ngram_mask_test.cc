// UniLM's n-gram targets: their distribution, computed exactly, and what holds always.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "data/sampling/corruption.h"

namespace anyorder::data {
namespace {

int64_t Count(const std::vector<uint8_t>& mask) {
  return std::accumulate(mask.begin(), mask.end(), int64_t{0});
}

// "0110"
std::string Name(const std::vector<uint8_t>& mask) {
  std::string name;
  for (const uint8_t one : mask) name += one != 0 ? '1' : '0';
  return name;
}

// The probability of every set of targets, by following all draws: a token that is none yet,
// uniformly; with probability 0.2 it begins a bigram or a trigram, half of the time each; an n-gram
// stays on its side of functional tokens and within the goal.
class AllDraws {
 public:
  AllDraws(std::vector<uint8_t> functional, int64_t goal)
      : functional_(std::move(functional)), goal_(goal) {
    Follow(std::vector<uint8_t>(functional_.size()), 1.0);
  }
  const std::map<std::string, double>& probabilities() const { return probabilities_; }

 private:
  void Follow(const std::vector<uint8_t>& mask, double probability) {
    if (Count(mask) == goal_) {
      probabilities_[Name(mask)] += probability;
      return;
    }
    std::vector<size_t> free;
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i] == 0 && functional_[i] == 0) free.push_back(i);
    }
    for (const size_t begin : free) {
      const std::vector<double> shares = {0.8, 0.1, 0.1};
      for (size_t length = 1; length <= 3; ++length) {
        std::vector<uint8_t> next = mask;
        for (size_t i = begin; i < begin + length && i < mask.size(); ++i) {
          if (functional_[i] != 0 || Count(next) == goal_) break;
          next[i] = 1;
        }
        Follow(next, probability * shares[length - 1] / static_cast<double>(free.size()));
      }
    }
  }

  std::vector<uint8_t> functional_;
  int64_t goal_;
  std::map<std::string, double> probabilities_;
};

TEST(DrawNgramMaskTest, EverySetOfTargetsComesAsOftenAsItMust) {
  const std::vector<uint8_t> functional = {0, 0, 0, 0, 1, 0, 0, 0, 1};
  constexpr int64_t kGoal = 4;
  constexpr int kTrials = 400000;
  const AllDraws exact(functional, kGoal);
  std::map<std::string, int64_t> counts;
  RandomStream random(1, RandomPurpose::kSpans, 0, 0);
  for (int trial = 0; trial < kTrials; ++trial)
    ++counts[Name(DrawNgramMask(functional, SamplingConfig(), kGoal, random))];
  double total = 0;
  for (const auto& [mask, probability] : exact.probabilities()) {
    total += probability;
    // Five standard deviations; there are 35 sets.
    const double spread = 5 * std::sqrt(kTrials * probability * (1 - probability));
    EXPECT_NEAR(static_cast<double>(counts[mask]), kTrials * probability, spread);
  }
  EXPECT_NEAR(total, 1, 1e-12);
  EXPECT_EQ(counts.size(), exact.probabilities().size());
  EXPECT_EQ(counts.size(), 35u);  // 4 of 7 tokens
}

// Far from crowded, draws can be told from the mask: runs of one, two and three tokens.
TEST(DrawNgramMaskTest, FourFifthsOfTheDrawsAreSingleTokens) {
  constexpr int64_t kSize = 400;
  constexpr int64_t kGoal = 3;
  constexpr int kTrials = 10000;
  const std::vector<uint8_t> functional(kSize, 0);
  RandomStream random(2, RandomPurpose::kSpans, 0, 0);
  int64_t triples = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::vector<uint8_t> mask = DrawNgramMask(functional, SamplingConfig(), kGoal, random);
    ASSERT_EQ(Count(mask), kGoal);
    int64_t begin = 0;
    while (mask[begin] == 0) ++begin;
    triples += begin + 2 < kSize && mask[begin + 1] != 0 && mask[begin + 2] != 0 ? 1 : 0;
  }
  // The first draw is a trigram; neighbours by chance are rarer than 6 times 3 tokens in the size.
  const double least = kTrials * 0.1 * (1 - 3.0 / kSize);
  const double most = kTrials * (0.1 + 18.0 / kSize);
  const double spread = 5 * std::sqrt(kTrials * 0.1 * 0.9);
  EXPECT_GT(static_cast<double>(triples), least - spread);
  EXPECT_LT(static_cast<double>(triples), most + spread);
}

TEST(DrawNgramMaskTest, TheGoalIsMetExactlyAndNoFunctionalTokenIsATarget) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<uint8_t> functional(40);
    for (const int64_t i : {11, 12, 38, 39}) functional[i] = 1;
    for (const int64_t goal : {0, 1, 2, 7, 35, 36}) {
      RandomStream random(seed, RandomPurpose::kSpans, 0, 0);
      const std::vector<uint8_t> mask = DrawNgramMask(functional, SamplingConfig(), goal, random);
      ASSERT_EQ(Count(mask), goal);
      for (size_t i = 0; i < mask.size(); ++i) ASSERT_FALSE(mask[i] != 0 && functional[i] != 0);
    }
  }
}

TEST(DrawNgramMaskTest, WithoutNgramsItIsSingleTokens) {
  SamplingConfig config;
  config.ngram_prob = 0;
  const std::vector<uint8_t> functional(20, 0);
  const std::vector<uint8_t> starts(20, 1);
  RandomStream first(4, RandomPurpose::kSpans, 0, 0);
  RandomStream second(4, RandomPurpose::kSpans, 0, 0);
  EXPECT_EQ(DrawNgramMask(functional, config, 6, first),
            DrawUnitMask(starts, functional, SpanKind::kSingle, 6, second));
}

}  // namespace
}  // namespace anyorder::data
