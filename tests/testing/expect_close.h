// Comparing numbers with computed bounds.
//
// Bounds come from rounding theory (Higham, "Accuracy and Stability of Numerical Algorithms",
// chapters 2-4), never from trial: a product or sum rounded to nearest is off by a factor of at
// most 1 + u, and a sum of n terms, added in any order, by at most Gamma(n) times the sum of the
// terms' magnitudes.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::test {

// Unit round-off: half the distance from 1 to the next number. kU is that of fp32.
inline constexpr double kU = 0x1p-24;
inline double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 0x1p-53;
    case DType::kBFloat16: return 0x1p-8;
    default: return kU;
  }
}

// n u / (1 - n u) for fp32: the growth of n roundings.
inline double Gamma(double n, double u = kU) { return n * u / (1 - n * u); }

// Absolute errors below this come from denormal numbers, where relative bounds end.
inline constexpr double kDenormal = 0x1p-120;

// |actual[i] - expected[i]| <= bound[i] + denormal for all i; reports the worst index, both values
// and its bound.
inline void ExpectClose(const std::vector<double>& actual, const std::vector<double>& expected,
                        const std::vector<double>& bound, const std::string& what,
                        double denormal = kDenormal) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  ASSERT_EQ(actual.size(), bound.size()) << what;
  size_t worst = 0;
  double worst_ratio = -1;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::fabs(actual[i] - expected[i]);
    // Not a number is never close; equal infinities are.
    double ratio = actual[i] == expected[i] ? 0 : error / (bound[i] + denormal);
    if (std::isnan(ratio)) ratio = INFINITY;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = i;
    }
  }
  EXPECT_LE(worst_ratio, 1.0) << what << ": element " << worst << " of " << actual.size() << " is "
                              << actual[worst] << ", expected " << expected[worst] << ", error "
                              << std::fabs(actual[worst] - expected[worst]) << ", bound "
                              << bound[worst];
}

// The same where `bound` is the error of results before they were rounded to `dtype`.
inline void ExpectRounded(const std::vector<double>& actual, const std::vector<double>& expected,
                          std::vector<double> bound, DType dtype, const std::string& what) {
  const double u = UnitRoundoff(dtype);
  for (size_t i = 0; i < std::min(bound.size(), expected.size()); ++i)
    bound[i] += u * (std::fabs(expected[i]) + bound[i]);
  ExpectClose(actual, expected, bound, what);
}

inline std::vector<double> Scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

}  // namespace anyorder::test
