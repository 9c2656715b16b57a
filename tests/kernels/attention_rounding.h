// How far a correct attention that computes with bf16 operands may be from the exact one, measured
// instead of bounded: the worst case of attention_bounds.h adds up magnitudes, and for XLNet's
// backward pass that is a thousand times what rounding does, and more than the gradients
// themselves.
//
// The same problem is solved in double on three neighbours of its tensors, each element moved by up
// to half a unit of bf16 and each result as well. A device rounds other values at other places
// (sums of q and biases, probabilities, their gradients, out in delta), about as many: its errors
// are draws of the same kind, allowed to be twice as large. A sum of many roundings is near normal,
// and of ten million normal draws none is beyond 6 standard deviations: so an element may be off by
// 2 * 6 times the tensor's root mean square. Rows that see few keys have larger errors, all by the
// same few roundings: there it may be as many times the largest deviation of its row and head.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/attention_bounds.h"
#include "tests/testing/dithered.h"

namespace anyorder::kernels::testing {

inline constexpr double kRoundingFactor = 2 * 6;
inline constexpr int kRoundingSamples = 3;

// The results of a neighbour of `data`.
inline AttentionData<double, double> RunNeighbour(AttentionData<double, double> data, uint64_t seed,
                                                  bool backward) {
  const auto move = [&](auto& x) { x = anyorder::testing::Dithered(std::move(x), ++seed); };
  VisitOperands(move, data);
  data = RunReference(std::move(data), backward);
  VisitResults([&](const char*, auto& x) { move(x); }, data);
  return data;
}

// Squared deviations of one result: their sum over elements and samples, and the largest of each
// row and head.
struct Deviations {
  int64_t width = 1;  // columns of a row and head
  double sum = 0;
  std::vector<double> largest;

  void Add(const std::vector<double>& moved, const std::vector<double>& exact) {
    largest.resize(exact.size() / static_cast<size_t>(width));
    for (size_t i = 0; i < exact.size(); ++i) {
      if (moved[i] == exact[i]) continue;  // also -inf
      const double square = (moved[i] - exact[i]) * (moved[i] - exact[i]);
      sum += square;
      double& most = largest[i / static_cast<size_t>(width)];
      most = std::max(most, square);
    }
  }
  double Rms(size_t size) const {
    return size == 0 ? 0 : std::sqrt(sum / (kRoundingSamples * static_cast<double>(size)));
  }
  std::vector<double> Bounds(size_t size) const {
    std::vector<double> bounds(size);
    for (size_t i = 0; i < size; ++i)
      bounds[i] =
          kRoundingFactor * std::max(Rms(size), std::sqrt(largest[i / static_cast<size_t>(width)]));
    return bounds;
  }
};

struct MeasuredRounding {
  AttentionBounds bounds;
  AttentionBounds rms;  // of the deviations: one number a result
};

// `exact`: of the reference, on bf16's values. Without `backward` only of out and lse.
inline MeasuredRounding MeasureRounding(const AttentionData<double, double>& exact,
                                        bool backward = true) {
  AttentionResults<Deviations> deviations;
  VisitPairs(exact, deviations, [&](const auto& x, Deviations& of) {
    const bool has_columns = &x != &exact.lse && &x != &exact.ddistance_bias;
    of.width = has_columns ? exact.shape.head_dim : 1;
  });
  for (uint64_t sample = 0; sample < kRoundingSamples; ++sample) {
    const auto near = RunNeighbour(exact, 1000 * (sample + 1), backward);
    VisitResults([](const char*, const auto& x, const auto& moved, auto& of) { of.Add(moved, x); },
                 exact, near, deviations);
  }
  MeasuredRounding measured;
  const auto measure = [](const char*, const auto& x, const auto& of, auto& bounds, auto& rms) {
    bounds = of.Bounds(x.size());
    rms = {of.Rms(x.size())};
  };
  VisitResults(measure, exact, deviations, measured.bounds, measured.rms);
  return measured;
}

// ExpectAgreement, in bf16 within the bounds of measured rounding as well. Not for rows that see a
// single key: their gradients are 0 but for the rounding of out in delta, which no neighbour of the
// operands shows.
template <typename T, typename Run>
void ExpectCloseAgreement(AttentionData<T, float> data, Run run) {
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  AttentionBounds bounds = AttentionErrorAnalysis(exact, DTypeOf<T>()).bounds();
  if constexpr (std::is_same_v<T, BFloat16>) {
    const MeasuredRounding measured = MeasureRounding(exact);
    VisitPairs(bounds, measured.bounds, [](auto& bound, const auto& other) {
      std::transform(bound.begin(), bound.end(), other.begin(), bound.begin(),
                     [](double a, double b) { return std::min(a, b); });
    });
  }
  run(&data);
  ExpectResultsWithin(data, exact, bounds);
}

}  // namespace anyorder::kernels::testing
