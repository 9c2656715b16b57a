// Attention of some precision against the reference in double, within the bounds of
// attention_bounds.h.

#pragma once

#include "kernels/backend.h"
#include "tests/kernels/attention_bounds.h"

namespace anyorder::kernels::testing {

// Both passes on a backend that takes host memory; without `backward` the first alone.
template <typename T, typename G>
void RunOn(Backend& backend, AttentionData<T, G>* data, bool backward = true) {
  data->Poison(backend.AttentionBackwardWorkspaceBytes(data->shape, DTypeOf<T>::kValue));
  backend.AttentionForward(data->Forward(), {});
  if (backward) backend.AttentionBackward(data->Backward(), {});
}

inline AttentionData<double, double> RunReference(AttentionData<double, double> data,
                                                  bool backward = true) {
  RunOn(*MakeReferenceBackend(), &data, backward);
  return data;
}

template <typename T>
void ExpectResultsWithin(const AttentionData<T, float>& data,
                         const AttentionData<double, double>& exact,
                         const AttentionBounds& bounds) {
  const auto expect = [](const char* name, const auto& actual, const auto& expected,
                         const auto& bound) {
    test::ExpectClose(InDouble(actual), expected, bound, name, /*denormal=*/0);
  };
  VisitResults(expect, data, exact, bounds);
}

// All results of run(&data).
template <typename T, typename Run>
void ExpectAgreement(AttentionData<T, float> data, Run run) {
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, DTypeOf<T>::kValue);
  run(&data);
  ExpectResultsWithin(data, exact, analysis.bounds());
}

}  // namespace anyorder::kernels::testing
