// One token drawn from logits: temperature, cuts and forbidden tokens, in fp64.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

#include "core/base/fields.h"

namespace anyorder {

struct TokenCuts {
  double temperature = 1.0;  // probabilities are those of logits / temperature; 0: the likeliest
  int64_t top_k = 0;         // only the k likeliest allowed tokens; 0: all
  double top_p = 1.0;  // only the likeliest whose probabilities sum to at least this (Holtzman et
                       // al. 2020); in (0, 1]

  void AddFaults(FaultList* faults) const;
  bool operator==(const TokenCuts&) const = default;
};

// The distribution that is left of logits. Tokens of equal logits are taken in the order of their
// ids. Has no token if none is allowed.
class TokenDistribution {
 public:
  TokenDistribution(const TokenCuts& cuts, const std::vector<double>& logits,
                    absl::FunctionRef<bool(int32_t)> is_allowed);

  bool empty() const { return tokens_.empty(); }
  // `uniform` in [0, 1). REQUIRES: not empty.
  int32_t Draw(double uniform) const;
  // The token of the largest probability, the lowest id of equal ones. REQUIRES: not empty.
  int32_t Likeliest() const;
  // 0 of a token that is cut or forbidden. O(tokens left).
  double Probability(int32_t token) const;

  // Those left, in the order that Draw takes them, and their probabilities.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  double probability(size_t index) const { return weights_[index] / sums_.back(); }

 private:
  std::vector<int32_t> tokens_;
  std::vector<double> weights_;  // exp((logit - largest) / temperature)
  std::vector<double> sums_;     // running, of weights
};

}  // namespace anyorder
