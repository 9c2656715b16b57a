// Kernel pooling (Xiong et al. 2017, "End-to-End Neural Ad-hoc Ranking with Kernel Pooling",
// section 3.1): how similar the tokens of a query and of a document are, as eleven numbers.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace anyorder {

inline constexpr int kNumKernels = 11;

struct Kernel {
  double mu = 0;     // the cosine that it looks for
  double sigma = 0;  // its width
};
// Equal tokens first (mu 1, sigma 1e-3), then mu 0.9, 0.7, ..., -0.9 with sigma 0.1: section 4.4.
std::array<Kernel, kNumKernels> RankingKernels();

// Vectors of a text's tokens, each of length 1, or 0 where the state was.
class UnitVectors {
 public:
  // `states` is [tokens, dim].
  UnitVectors(const std::vector<float>& states, int64_t dim);

  int64_t dim() const { return dim_; }
  int64_t size() const { return static_cast<int64_t>(values_.size()) / dim_; }
  const float* at(int64_t token) const { return values_.data() + token * dim_; }

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
KernelFeatures PoolKernels(const UnitVectors& query, const UnitVectors& document);

}  // namespace anyorder
