// Kernel pooling (Xiong et al. 2017, "End-to-End Neural Ad-hoc Ranking with Kernel Pooling",
// section 3.1): how similar the tokens of a query and of a document are, as eleven numbers.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/check.h"

namespace anyorder {

inline constexpr int kNumKernels = 11;

struct Kernel {
  double mu = 0;     // the cosine that it looks for
  double sigma = 0;  // its width
};
// Equal tokens first (mu 1, sigma 1e-3), then mu 0.9, 0.7, ..., -0.9 with sigma 0.1: section 4.4.
inline std::array<Kernel, kNumKernels> RankingKernels() {
  std::array<Kernel, kNumKernels> kernels;
  kernels[0] = {1.0, 1e-3};
  for (int k = 1; k < kNumKernels; ++k) kernels[k] = {(11 - 2 * k) / 10.0, 0.1};
  return kernels;
}

// Vectors of a text's tokens, each of length 1, or 0 where the state was.
class UnitVectors {
 public:
  // `states` is [tokens, dim].
  UnitVectors(const std::vector<float>& states, int64_t dim) : dim_(dim), values_(states) {
    ANYORDER_CHECK(dim > 0 && states.size() % static_cast<size_t>(dim) == 0)
        << states.size() << " numbers of vectors of " << dim;
    for (int64_t token = 0; token < size(); ++token) {
      float* vector = values_.data() + token * dim;
      const double length = std::sqrt(Dot(vector, vector, dim));
      if (length == 0) continue;
      for (int64_t i = 0; i < dim; ++i)
        vector[i] = static_cast<float>(static_cast<double>(vector[i]) / length);
    }
  }

  int64_t dim() const { return dim_; }
  int64_t size() const { return static_cast<int64_t>(values_.size()) / dim_; }
  const float* at(int64_t token) const { return values_.data() + token * dim_; }

  // Eight sums side by side, which a compiler may compute together without changing any order.
  static double Dot(const float* a, const float* b, int64_t size) {
    constexpr int64_t kSums = 8;
    double sums[kSums] = {};
    int64_t i = 0;
    for (; i + kSums <= size; i += kSums)
      for (int64_t s = 0; s < kSums; ++s)
        sums[s] += static_cast<double>(a[i + s]) * static_cast<double>(b[i + s]);
    for (int64_t s = 0; i < size; ++i, ++s)
      sums[s] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum;
  }

 private:
  int64_t dim_;
  std::vector<float> values_;
};

using KernelFeatures = std::array<double, kNumKernels>;

// phi_k = 0.01 * sum_i log(max(1e-10, sum_j exp(-(M_ij - mu_k)^2 / (2 sigma_k^2)))), where M_ij is
// the cosine of the query's token i and the document's token j. The paper has neither the factor
// nor the bound; both are those of the authors' code (github.com/AdeDZY/K-NRM): a kernel that no
// token is near has a logarithm, and scores start where tanh is not flat. In double, sums in one
// order on any machine; a document without tokens gives every kernel the bound. REQUIRES: both of
// one dim.
inline KernelFeatures PoolKernels(const UnitVectors& query, const UnitVectors& document) {
  ANYORDER_CHECK(query.dim() == document.dim()) << query.dim() << ", " << document.dim();
  static const std::array<Kernel, kNumKernels> kernels = RankingKernels();
  constexpr double kLeastSum = 1e-10;
  constexpr double kScale = 0.01;
  KernelFeatures features{};
  for (int64_t i = 0; i < query.size(); ++i) {
    std::array<double, kNumKernels> sums{};
    for (int64_t j = 0; j < document.size(); ++j) {
      const double cosine = UnitVectors::Dot(query.at(i), document.at(j), query.dim());
      for (int k = 0; k < kNumKernels; ++k) {
        const double distance = (cosine - kernels[k].mu) / kernels[k].sigma;
        sums[k] += std::exp(-0.5 * distance * distance);
      }
    }
    for (int k = 0; k < kNumKernels; ++k)
      features[k] += kScale * std::log(std::max(kLeastSum, sums[k]));
  }
  return features;
}

}  // namespace anyorder
