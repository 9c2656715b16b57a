// Gradients checked by central finite differences in fp64.

#pragma once

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "tests/testing/expect_close.h"

namespace anyorder::test {

// gradient[i] is the derivative of loss() by (*input)[i], for every element.
//
// Bound: a central difference with step h is off by c h^2 + O(h^4), so the differences with h and h
// / 2 are 3/4 c h^2 apart and the finer one is off by a third of that; and by the rounding of two
// losses, sums of some thousand terms of total magnitude `loss_magnitude`, divided by h.
inline void ExpectGradient(absl::Span<double> input, const std::vector<double>& gradient,
                           const std::function<double()>& loss, double loss_magnitude,
                           const std::string& what) {
  constexpr double kStep = 1e-3;
  std::vector<double> expected;
  std::vector<double> bound;
  for (double& x : input) {
    const double middle = x;
    const auto difference = [&](double h) {
      x = middle + h;
      const double above = loss();
      x = middle - h;
      const double below = loss();
      x = middle;
      return (above - below) / (2 * h);
    };
    const double coarse = difference(kStep);
    const double fine = difference(kStep / 2);
    expected.push_back(fine);
    bound.push_back(std::fabs(coarse - fine) + Gamma(1000, 0x1p-53) * loss_magnitude / kStep);
  }
  ExpectClose(gradient, expected, bound, what);
}

// sum_i weights[i] * values[i]: a scalar whose gradient by `values` is `weights`.
inline double WeightedSum(const std::vector<double>& values, const std::vector<double>& weights) {
  return std::inner_product(values.begin(), values.end(), weights.begin(), 0.0);
}
inline double SumOfMagnitudes(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::fabs(value);
  return sum;
}

}  // namespace anyorder::test
