// Kernels against sums written out here; numpy's are in tests/parity/ranker_parity.py.

#include "core/ranking/kernel_pooling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace anyorder {
namespace {

TEST(KernelPoolingTest, KernelsAreThoseOfThePaper) {
  const auto kernels = RankingKernels();
  EXPECT_EQ(kernels[0].mu, 1.0);
  EXPECT_EQ(kernels[0].sigma, 1e-3);
  EXPECT_EQ(kernels[1].mu, 0.9);
  EXPECT_EQ(kernels[5].mu, 0.1);
  EXPECT_EQ(kernels[10].mu, -0.9);
  for (int k = 1; k < kNumKernels; ++k) EXPECT_EQ(kernels[k].sigma, 0.1);
}

TEST(KernelPoolingTest, VectorsHaveLengthOneOrNone) {
  const UnitVectors vectors({3, 4, 0, 0, -2, 0}, 2);
  ASSERT_EQ(vectors.size(), 3);
  EXPECT_FLOAT_EQ(vectors.at(0)[0], 0.6f);
  EXPECT_FLOAT_EQ(vectors.at(0)[1], 0.8f);
  EXPECT_EQ(vectors.at(1)[0], 0);
  EXPECT_EQ(vectors.at(2)[0], -1);
}

// Two query tokens, whose cosines with the document's three are 1, 0, 0 and 0, 1, -1.
TEST(KernelPoolingTest, LogarithmsOfSumsOverTheDocumentAreSummedOverTheQuery) {
  const UnitVectors query({5, 0, 0, 2}, 2);
  const UnitVectors document({1, 0, 0, 7, 0, -1}, 2);
  const KernelFeatures features = PoolKernels(query, document);
  const auto bell = [](double distance) { return std::exp(-distance * distance / 0.02); };
  EXPECT_NEAR(features[0], 0, 1e-15);  // each has its equal
  for (int k = 1; k < kNumKernels; ++k) {
    const double mu = 1.1 - 0.2 * k;
    const double first = bell(1 - mu) + 2 * bell(mu);
    const double second = bell(mu) + bell(1 - mu) + bell(-1 - mu);
    const double expected =
        0.01 * (std::log(std::max(1e-10, first)) + std::log(std::max(1e-10, second)));
    EXPECT_NEAR(features[k], expected, 1e-14) << "kernel " << k;
  }
}

TEST(KernelPoolingTest, NothingToCompareIsTheBound) {
  const UnitVectors query({1, 0, 0, 1}, 2);
  for (const double feature : PoolKernels(query, UnitVectors({}, 2)))
    EXPECT_DOUBLE_EQ(feature, 2 * 0.01 * std::log(1e-10));
  for (const double feature : PoolKernels(UnitVectors({}, 2), query)) EXPECT_EQ(feature, 0);
}

}  // namespace
}  // namespace anyorder
