// Gradients checked by central finite differences in fp64.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/testing/expect_close.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::test {

// `gradient` [i] is the derivative of loss() by input[i], for every element (fp64).
//
// Bound: a central difference with step h is off by c h^2 + O(h^4), so the differences with h and h
// / 2 are 3/4 c h^2 apart and the finer one is off by a third of that; and by the rounding of two
// losses, sums of some thousand terms of total magnitude `loss_magnitude`, divided by h.
inline void ExpectGradient(HostTensor* input, const HostTensor& gradient,
                           const std::function<double()>& loss, double loss_magnitude,
                           const std::string& what) {
  constexpr double kStep = 1e-3;
  std::vector<double> expected;
  std::vector<double> bound;
  for (int64_t i = 0; i < input->size(); ++i) {
    const double middle = input->At(i);
    const auto difference = [&](double h) {
      input->Set(i, middle + h);
      const double above = loss();
      input->Set(i, middle - h);
      const double below = loss();
      input->Set(i, middle);
      return (above - below) / (2 * h);
    };
    const double coarse = difference(kStep);
    const double fine = difference(kStep / 2);
    expected.push_back(fine);
    bound.push_back(std::fabs(coarse - fine) + Gamma(1000, 0x1p-53) * loss_magnitude / kStep);
  }
  ExpectClose(gradient.Values(), expected, bound, what);
}

// sum_i weights[i] * values[i]: a scalar whose gradient by `values` is `weights`.
inline double WeightedSum(const HostTensor& values, const HostTensor& weights) {
  double sum = 0;
  for (int64_t i = 0; i < values.size(); ++i) sum += values.At(i) * weights.At(i);
  return sum;
}
inline double SumOfMagnitudes(const HostTensor& values) {
  double sum = 0;
  for (int64_t i = 0; i < values.size(); ++i) sum += std::fabs(values.At(i));
  return sum;
}

}  // namespace anyorder::test
