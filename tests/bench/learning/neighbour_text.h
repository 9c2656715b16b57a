// Text in which every second token is a function of both its neighbours, so that what can be reached from one side and from both is
// known in closed form.
//
// Even tokens are independent and uniform over V symbols; an odd one is the sum of its neighbours modulo V.
//   read from left to right:  an odd token costs ln V (its right neighbour is not seen yet, and makes every value alike);
//                             the even token after it costs 0: it is the odd one minus the even one before
//   read from both sides:     a hidden token costs 0 where what is seen determines it, else ln V (UndeterminedTokens)

#pragma once

#include <cstdint>
#include <vector>

#include "core/model/text_sample.h"

namespace anyorder::bench {

struct NeighbourText {
  int64_t symbols = 4;  // V

  static constexpr int32_t kFirstId = 9;  // after the vocabulary's special pieces
  static constexpr int32_t kClassId = 3;
  static constexpr int32_t kMaskId = 6;
  int64_t vocab_size() const { return kFirstId + symbols; }

  // SampleKind::kContiguous, the first token even.
  TextSample Window(const SamplingConfig& sampling,
                    uint64_t seed,
                    int64_t lane,
                    int64_t step) const;
  // SampleKind::kMaskedPairs: seq_len - 1 tokens, the first even, and CLS; BERT's targets, all of them hidden behind `<mask>`.
  TextSample Masked(const SamplingConfig& sampling,
                    uint64_t seed,
                    int64_t lane,
                    int64_t step) const;
};

// Of tokens, the first of them even, of which those with `hidden` are not seen: 1 where what is seen leaves all V values alike, 0 where
// it determines the token. Between the two there is nothing: what is seen are sums of neighbouring even tokens, chains of which
// fix all of their tokens or none.
std::vector<uint8_t> UndeterminedTokens(const std::vector<uint8_t>& hidden);

}  // namespace anyorder::bench
