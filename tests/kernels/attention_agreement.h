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
void ExpectForwardWithin(const AttentionData<T, float>& data,
                         const AttentionData<double, double>& exact,
                         const AttentionBounds& bounds) {
  ExpectWithin("lse", data.lse, exact.lse, bounds.lse);
  ExpectWithin("out", data.out, exact.out, bounds.out);
}

template <typename T>
void ExpectBackwardWithin(const AttentionData<T, float>& data,
                          const AttentionData<double, double>& exact,
                          const AttentionBounds& bounds) {
  ExpectWithin("dq", data.dq, exact.dq, bounds.dq);
  ExpectWithin("dk", data.dk, exact.dk, bounds.dk);
  ExpectWithin("dv", data.dv, exact.dv, bounds.dv);
  ExpectWithin("drelative", data.drelative, exact.drelative, bounds.drelative);
  ExpectWithin("dcontent_bias", data.dcontent_bias, exact.dcontent_bias, bounds.dcontent_bias);
  ExpectWithin("dposition_bias", data.dposition_bias, exact.dposition_bias, bounds.dposition_bias);
  ExpectWithin("dsegment_bias", data.dsegment_bias, exact.dsegment_bias, bounds.dsegment_bias);
  ExpectWithin("dsegment_embedding", data.dsegment_embedding, exact.dsegment_embedding,
               bounds.dsegment_embedding);
  ExpectWithin("ddistance_bias", data.ddistance_bias, exact.ddistance_bias, bounds.ddistance_bias);
}

// All results of run(&data).
template <typename T, typename Run>
void ExpectAgreement(AttentionData<T, float> data, Run run) {
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<T>);
  run(&data);
  ExpectForwardWithin(data, exact, analysis.bounds());
  ExpectBackwardWithin(data, exact, analysis.bounds());
}

}  // namespace anyorder::kernels::testing
