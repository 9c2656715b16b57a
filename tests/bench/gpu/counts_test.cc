// The counts against numbers worked out by hand from the definitions, for XLNet's two published
// sizes.

#include "tests/bench/gpu/counts.h"

#include <gtest/gtest.h>

namespace anyorder::bench {
namespace {

TEST(CountsTest, AreThoseOfThePublishedSizes) {
  const Flops large = CountFlops(kXlnetLarge);
  EXPECT_NEAR(large.gemm_forward, 390.7e9, 0.05e9);
  EXPECT_NEAR(large.gemm_backward, 742.7e9, 0.05e9);
  EXPECT_NEAR(large.attention_forward, 67.6e9, 0.05e9);
  EXPECT_NEAR(large.attention_backward, 135.2e9, 0.05e9);
  EXPECT_NEAR(large.loss_forward, 5.6e9, 0.05e9);
  EXPECT_NEAR(large.loss_backward, 11.1e9, 0.05e9);
  EXPECT_NEAR(large.total(), 1352.9e9, 0.05e9);
  EXPECT_NEAR(large.total() / 512, 2642e6, 0.5e6);
  EXPECT_NEAR(CountFlops(kXlnetBase).total(), 407.4e9, 0.05e9);
  EXPECT_NEAR(CountFlops(kXlnetBase).total() / 512, 796e6, 0.5e6);
  EXPECT_NEAR(AttentionUnit(kXlnetLarge), 0.939e9, 0.0005e9);
  EXPECT_NEAR(RelativeFlopsPerStep(kXlnetLarge), 283e9, 0.5e9);
  EXPECT_NEAR(RelativeFlopsPerStep(kXlnetBase), 80e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(CountParameters(kXlnetLarge)), 360.3e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(CountParameters(kXlnetBase)), 116.8e6, 0.05e6);
}

}  // namespace
}  // namespace anyorder::bench
