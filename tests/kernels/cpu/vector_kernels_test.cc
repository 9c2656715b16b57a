// The building blocks of every vector variant that this machine runs: errors of exp and erfc,
// dropout masks.

#include "kernels/cpu/vector_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/dropout.h"
#include "tests/testing/expect_close.h"

namespace anyorder::kernels::cpu {
namespace {

class VectorKernelsTest : public ::testing::TestWithParam<const VectorKernels*> {};

INSTANTIATE_TEST_SUITE_P(Variants, VectorKernelsTest, ::testing::ValuesIn(RunnableVectorVariants()),
                         [](const auto& info) { return std::string(info.param->name); });

// The largest |y - exact(x)| / bound(x), where `kernel` makes y of a grid of x.
double WorstError(decltype(VectorKernels::exp) kernel, float low, float high,
                  double (*exact)(double), double (*bound)(double)) {
  constexpr int64_t kCount = 400001;
  std::vector<float> x(kCount), y(kCount);
  for (int64_t i = 0; i < kCount; ++i)
    x[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(kCount - 1);
  kernel(x.data(), y.data(), kCount);
  double worst = 0;
  for (int64_t i = 0; i < kCount; ++i)
    worst = std::max(worst, std::fabs(y[i] - exact(x[i])) / bound(x[i]));
  return worst;
}

// Documented in vector_math.h: 2^-22, without fused multiply-add too.
TEST_P(VectorKernelsTest, ExpIsWithinItsDocumentedError) {
  const auto bound = [](double x) { return 0x1p-22 * std::exp(x); };
  EXPECT_LT(WorstError(GetParam()->exp, -87.29f, 88.29f, std::exp, bound), 1.0);
}

TEST_P(VectorKernelsTest, ExpOfSpecialValues) {
  const std::vector<float> x = {-INFINITY, -1000.0f, -87.4f, 0.0f, 88.4f, INFINITY, NAN};
  std::vector<float> y(x.size());
  GetParam()->exp(x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_TRUE(std::isnan(y.back()));
  y.pop_back();
  EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 1, INFINITY, INFINITY}));
}

// Documented in vector_math.h: 2^-21 + 2^-23 x^2.
TEST_P(VectorKernelsTest, ErfcIsWithinItsDocumentedError) {
  const auto bound = [](double x) { return std::erfc(x) * test::kU * (8 + 2 * x * x); };
  EXPECT_LT(WorstError(GetParam()->erfc, -6.0f, 9.0f, std::erfc, bound), 1.0);
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
