// The building blocks of every vector variant that this machine runs: errors of exp and erfc,
// dropout masks.

#include "kernels/cpu/vector_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/dropout.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cpu {
namespace {

class VectorKernelsTest : public ::testing::TestWithParam<const VectorKernels*> {};

std::vector<const VectorKernels*> Variants() {
  std::vector<const VectorKernels*> variants;
  for (const VectorKernels* variant : RunnableVectorVariants().variant) {
    if (variant != nullptr) variants.push_back(variant);
  }
  return variants;
}
INSTANTIATE_TEST_SUITE_P(Variants, VectorKernelsTest, ::testing::ValuesIn(Variants()),
                         [](const auto& info) { return std::string(info.param->name); });

std::vector<float> Grid(float low, float high, int64_t count) {
  std::vector<float> x(count);
  for (int64_t i = 0; i < count; ++i)
    x[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(count - 1);
  return x;
}

// Documented in vector_math.h: 2^-22, without fused multiply-add too.
TEST_P(VectorKernelsTest, ExpIsWithinItsDocumentedError) {
  const auto x = Grid(-87.29f, 88.29f, 400001);
  std::vector<float> y(x.size());
  GetParam()->exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(double{x[i]});
    worst = std::max(worst, std::fabs(y[i] - exact) / exact);
  }
  EXPECT_LT(worst, 0x1p-22);
}

TEST_P(VectorKernelsTest, ExpOfSpecialValues) {
  const std::vector<float> x = {-INFINITY, -1000.0f, -87.4f, 0.0f, 88.4f, INFINITY, NAN};
  std::vector<float> y(x.size());
  GetParam()->exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[4], INFINITY);
  EXPECT_EQ(y[5], INFINITY);
  EXPECT_TRUE(std::isnan(y[6]));
}

// Documented in vector_math.h: 2^-21 + 2^-23 x^2.
TEST_P(VectorKernelsTest, ErfcIsWithinItsDocumentedError) {
  const auto x = Grid(-6.0f, 9.0f, 400001);
  std::vector<float> y(x.size());
  GetParam()->erfc(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::erfc(double{x[i]});
    const double bound = exact * (8 * test::kU + 2 * test::kU * double{x[i]} * double{x[i]});
    worst = std::max(worst, std::fabs(y[i] - exact) / bound);
  }
  EXPECT_LT(worst, 1.0);
}

TEST_P(VectorKernelsTest, DropoutMasksAreThoseOfTheDefinition) {
  for (const double rate : {0.0001, 0.1, 0.5, 0.99}) {
    const Dropout dropout = MakeDropout(7, uint64_t{1} << 40, 9, rate);
    const std::vector<int32_t> row_ids = {0, 12345, 2147483647};
    const DropoutJob job{dropout.key0,      dropout.key1,    dropout.site,
                         dropout.threshold, dropout.scale(), row_ids.data()};
    for (const int64_t columns : {1, 8, 511, 512, 513, 4099}) {
      std::vector<float> factors(columns);
      for (size_t row = 0; row < row_ids.size(); ++row) {
        GetParam()->dropout_factors(job, static_cast<int64_t>(row), columns, factors.data());
        for (int64_t c = 0; c < columns; ++c) {
          const bool keep =
              KeepElement(dropout, static_cast<uint32_t>(row_ids[row]), static_cast<uint32_t>(c));
          ASSERT_EQ(factors[c], keep ? dropout.scale() : 0.0f) << "row " << row << " column " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace anyorder::kernels::cpu
