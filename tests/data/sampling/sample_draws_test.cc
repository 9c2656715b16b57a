#include "data/sampling/sample_draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace anyorder::data {

namespace {

using ::testing::ElementsAre;

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

// The order of the golden example: half of 8 positions, blocks of 4, permutation (2, 0, 3, 1).
TEST(PermutationTest, BlocksShareOnePermutationAndStayInOrder) {
  std::vector<int32_t> order(8);
  FillOrder({2, 0, 3, 1}, absl::MakeSpan(order));
  EXPECT_THAT(order, ElementsAre(2, 0, 3, 1, 6, 4, 7, 5));
}

TEST(PermutationTest, IsAPermutationOfEverySize) {
  for (int64_t size = 1; size < 70; ++size) {
    RandomStream random(1, RandomPurpose::kPermutation, size, 0);
    std::vector<int32_t> permutation = DrawPermutation(size, random);
    std::sort(permutation.begin(), permutation.end());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(permutation[i], i) << size;
  }
}

TEST(PermutationTest, EveryPermutationIsEquallyLikely) {
  constexpr int kDraws = 24000;
  std::vector<int> counts(256);
  for (int draw = 0; draw < kDraws; ++draw) {
    RandomStream random(1, RandomPurpose::kPermutation, draw, 0);
    int code = 0;
    for (const int32_t value : DrawPermutation(4, random)) code = code * 4 + value;
    ++counts[code];
  }
  // Five standard deviations of a binomial count, one in 24.
  const double bound = 5 * std::sqrt(kDraws * (1.0 / 24) * (23.0 / 24));
  int seen = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++seen;
    EXPECT_NEAR(count, kDraws / 24.0, bound);
  }
  EXPECT_EQ(seen, 24);
}

}  // namespace

}  // namespace anyorder::data
