// One token drawn from logits: temperature, cuts and forbidden tokens, in fp64; and who hears of
// it.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

#include "core/base/fields.h"

namespace anyorder {

// The most tokens of a text, and the most of whatever an option counts in tokens or passes.
inline constexpr int64_t kMostTokens = int64_t{1} << 20;

struct TokenCuts {
  double temperature = 1.0;
  int64_t top_k = 0;   // of the allowed tokens
  double top_p = 1.0;  // Holtzman et al. 2020

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("temperature", self.temperature, "divide logits by X; 0: the most likely token",
          Between(0, 1e6));
    visit("top_k", self.top_k, "sample from the N most likely tokens; 0: all",
          Between(0, kMostTokens));
    visit("top_p", self.top_p,
          "nucleus sampling: sample from the most likely tokens of total probability X",
          PositiveFraction());
  }
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

  // The tokens left, in the order that Draw takes them, and their probabilities.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  double probability(size_t index) const { return weights_[index] / sums_.back(); }

 private:
  std::vector<int32_t> tokens_;
  std::vector<double> weights_;  // exp((logit - largest) / temperature)
  std::vector<double> sums_;     // running, of weights
};

struct LikelyToken {
  int32_t token = 0;
  double log_prob = 0;
};

// A token that was written: what is told of a text meanwhile.
struct WrittenToken {
  int64_t pass = 0;      // of the network, from 1: those that computed something for this text
  int64_t position = 0;  // in the text, what was given included
  int32_t token = 0;
  double log_prob = 0;    // the model's, given what it saw; without temperature and cuts, in nats
  double confidence = 0;  // what the method chose by, if it did; else the token's probability
  std::vector<LikelyToken> likeliest = {};  // in its place, the likeliest first, if asked for
};

// Called with each token when it has been written; `text` is its number in the call.
using TokenListener = absl::FunctionRef<void(int64_t text, const WrittenToken& token)>;

inline void NobodyListens(int64_t, const WrittenToken&) {}

// Asked after each pass that computed something for text `text`: whether it goes on. If not, its
// blanks stay unwritten. `is_done`: nothing is left to write.
using PassCheck = absl::FunctionRef<bool(int64_t text, bool is_done)>;

inline bool GoesOn(int64_t, bool) { return true; }

}  // namespace anyorder
