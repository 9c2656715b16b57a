// Attention of some precision against the reference in double, within the bounds of
// attention_bounds.h.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/attention_bounds.h"

namespace anyorder::kernels::testing {

// Unit roundoff of operands.
template <typename T>
inline constexpr double kUnitOf = std::is_same_v<T, BFloat16> ? 1.0 / 256.0 : 1.0 / 16777216.0;

template <typename T>
double ToDouble(T x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return static_cast<double>(static_cast<float>(x));
  else
    return static_cast<double>(x);
}

// Worst element, both values and the bound.
template <typename T>
void ExpectWithin(const char* name, const std::vector<T>& actual,
                  const std::vector<double>& expected, const std::vector<double>& bound) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = ToDouble(actual[i]);
    if (a == expected[i]) continue;  // also -inf
    const double ratio = std::abs(a - expected[i]) / bound[i];
    if (!(ratio <= worst)) {
      worst = ratio;
      at = i;
      if (std::isnan(ratio)) break;
    }
  }
  EXPECT_LE(worst, 1.0) << name << "[" << at << "] is " << ToDouble(actual[at]) << ", expected "
                        << expected[at] << " within " << bound[at];
}

// Without `backward` the gradients are not computed.
inline AttentionData<double, double> RunReference(AttentionData<double, double> data,
                                                  bool backward = true) {
  const std::unique_ptr<Backend> reference = MakeReferenceBackend();
  data.Poison(reference->AttentionBackwardWorkspaceBytes(data.shape, DType::kFloat64));
  reference->AttentionForward(data.Forward(), StreamView());
  if (backward) reference->AttentionBackward(data.Backward(), StreamView());
  return data;
}

template <typename T>
void ExpectResultsWithin(const AttentionData<T, float>& data,
                         const AttentionData<double, double>& exact,
                         const AttentionBounds& bounds) {
  const auto expect = [](const char* name, const auto& actual, const auto& expected,
                         const auto& bound) { ExpectWithin(name, actual, expected, bound); };
  VisitResults(expect, data, exact, bounds);
}

// All results of run(&data).
template <typename T, typename Run>
void ExpectAgreement(AttentionData<T, float> data, Run run) {
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<T>);
  run(&data);
  ExpectResultsWithin(data, exact, analysis.bounds());
}

}  // namespace anyorder::kernels::testing
