#include "data/sampling/permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace anyorder::data {
namespace {

using ::testing::ElementsAre;

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
