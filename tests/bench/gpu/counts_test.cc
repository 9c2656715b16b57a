// The counts against numbers worked out by hand from the definitions, for XLNet's two published
// sizes.

#include "tests/bench/gpu/counts.h"

#include <gtest/gtest.h>

namespace anyorder::bench {
namespace {

TEST(CountsTest, AreThoseOfThePublishedSizes) {
  EXPECT_NEAR(CountFlops(kXlnetLarge), 1352.9e9, 0.05e9);
  EXPECT_NEAR(CountFlops(kXlnetBase), 407.4e9, 0.05e9);
  EXPECT_NEAR(AttentionUnit(kXlnetLarge), 0.939e9, 0.0005e9);
  EXPECT_NEAR(static_cast<double>(CountParameters(kXlnetLarge)), 360.3e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(CountParameters(kXlnetBase)), 116.8e6, 0.05e6);
}

}  // namespace
}  // namespace anyorder::bench
