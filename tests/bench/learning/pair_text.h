// Text of two-token names ("New York") whose members are jointly random, so that what any model can
// reach is known in closed form.
//
// A name is (first member a, second member b): a uniform over C tokens, b uniform over r tokens
// that depend on a, and every b belongs to r firsts. So H(a) = H(b) = ln C, H(b | a) = H(a | b) =
// ln r, and names are independent of each other:
//   in sequence (marginal + conditional):   H(a, b)      = ln C + ln r
//   each by itself (sum of marginals):      H(a) + H(b)  = 2 ln C
//   the gap is the mutual information:      I(a; b)      = ln C - ln r

#pragma once

#include <cstdint>
#include <vector>

#include "core/objective/text_sample.h"

namespace anyorder::bench {

struct PairText {
  int64_t firsts = 64;   // C
  int64_t branches = 4;  // r <= C

  static constexpr int32_t kFirstId = 9;  // after the vocabulary's special pieces
  int64_t vocab_size() const { return kFirstId + 2 * firsts; }
  bool IsFirst(int32_t id) const { return id >= kFirstId && id < kFirstId + firsts; }
  bool IsSecond(int32_t id) const { return id >= kFirstId + firsts && id < vocab_size(); }

  double JointEntropy() const;     // ln C + ln r
  double MarginalEntropy() const;  // ln C, of either member
  double MutualInformation() const { return 2 * MarginalEntropy() - JointEntropy(); }

  // Least expected loss of both members, each predicted by itself, when the text shows them
  // corrupted as a denoising objective does: every target is the mask with probability `mask_rate`,
  // any of the vocabulary's tokens with `random_rate`, else itself. The targets that were left as
  // they are, and partners that were, give part of the answer away; so it lies below 2 ln C, and
  // equals it for mask_rate = 1.
  double CorruptedEntropy(double mask_rate, double random_rate) const;

  // [names][names SEP names SEP SEP CLS]. Of every four names of a half one is a target in both
  // members; the orders are uniformly random; input_tokens are corrupted at targets. One SEP more
  // than usual, since names need an even number of slots. `sampling` is PairSampling's.
  TextSample Draw(const SamplingConfig& sampling, uint64_t seed, int64_t lane, int64_t step) const;
};

// Sequences of `seq_len` slots: a multiple of 16, so that targets come in pairs in both halves.
SamplingConfig PairSampling(int64_t seq_len);

}  // namespace anyorder::bench
