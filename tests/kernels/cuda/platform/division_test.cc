// Both ways to divide agree with the language's, at the border between them and far beyond.

#include "kernels/cuda/platform/division.h"

#include <gtest/gtest.h>

#include <vector>

namespace anyorder::kernels::cuda {
namespace {

TEST(DivisionTest, IsTheLanguagesOnBothSidesOf32Bits) {
  constexpr int64_t kBorder = int64_t{0xffffffff};
  for (const int64_t limit : {int64_t{1}, int64_t{1000}, kBorder, kBorder + 1, int64_t{1} << 45}) {
    for (const int64_t divisor : {int64_t{1}, int64_t{3}, int64_t{127}, int64_t{4096}, limit}) {
      for (const int64_t index : {int64_t{0}, limit / 3, limit / 2, limit - 1}) {
        const Quotient got = Divide(index, divisor, limit);
        EXPECT_EQ(got.quotient, index / divisor) << index << " by " << divisor;
        EXPECT_EQ(got.remainder, index % divisor) << index << " by " << divisor;
      }
    }
  }
}

}  // namespace
}  // namespace anyorder::kernels::cuda
