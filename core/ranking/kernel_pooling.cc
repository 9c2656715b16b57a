#include "core/ranking/kernel_pooling.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace anyorder {
namespace {

constexpr double kLeastSum = 1e-10;
constexpr double kScale = 0.01;

// Eight sums side by side, which a compiler may compute together without changing any order.
double Dot(const float* a, const float* b, int64_t size) {
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

}  // namespace

std::array<Kernel, kNumKernels> RankingKernels() {
  std::array<Kernel, kNumKernels> kernels;
  kernels[0] = {1.0, 1e-3};
  for (int k = 1; k < kNumKernels; ++k) kernels[k] = {(11 - 2 * k) / 10.0, 0.1};
  return kernels;
}

UnitVectors::UnitVectors(const std::vector<float>& states, int64_t dim)
    : dim_(dim), values_(states) {
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

KernelFeatures PoolKernels(const UnitVectors& query, const UnitVectors& document) {
  ANYORDER_CHECK(query.dim() == document.dim()) << query.dim() << ", " << document.dim();
  static const std::array<Kernel, kNumKernels> kernels = RankingKernels();
  KernelFeatures features{};
  for (int64_t i = 0; i < query.size(); ++i) {
    std::array<double, kNumKernels> sums{};
    for (int64_t j = 0; j < document.size(); ++j) {
      const double cosine = Dot(query.at(i), document.at(j), query.dim());
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
