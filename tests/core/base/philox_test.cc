#include "core/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace anyorder {
namespace {

// Known answers published with Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, MatchesPublishedVectors) {
  EXPECT_EQ(Philox4x32<10>({0, 0, 0, 0}, 0, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      Philox4x32<10>({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
      (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox4x32<10>({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
      (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStreamTest, EveryCoordinateChangesTheSequence) {
  std::set<uint32_t> firsts;
  for (const uint64_t seed : {1, 2}) {
    for (const auto purpose : {RandomPurpose::kPairs, RandomPurpose::kSpans}) {
      for (const uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
        for (const uint64_t lane : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40})
          firsts.insert(RandomStream(seed, purpose, step, lane).Next());
      }
    }
  }
  EXPECT_EQ(firsts.size(), 2u * 2 * 3 * 3);
}

TEST(RandomStreamTest, BelowIsUniform) {
  RandomStream random(7, RandomPurpose::kPairs, 3, 4);
  constexpr int kDraws = 60000;
  std::vector<int> counts(6);
  for (int i = 0; i < kDraws; ++i) ++counts[random.Below(6)];
  // Five standard deviations of a binomial count.
  const double bound = 5 * std::sqrt(kDraws * (1.0 / 6) * (5.0 / 6));
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 6.0, bound);
}

TEST(RandomStreamTest, NormalHasUnitVariance) {
  RandomStream random(7, RandomPurpose::kInit, 0, 0);
  constexpr int kDraws = 100000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.Normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
}

}  // namespace
}  // namespace anyorder
