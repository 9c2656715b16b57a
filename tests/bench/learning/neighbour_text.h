// Text in which every second token is a function of both its neighbours, so that what can be
// reached from one side and from both is known in closed form.
//
// Even tokens are independent and uniform over V symbols; an odd one is the pair of its neighbours,
// one of V * V symbols.
//   read from left to right: an odd token costs ln V (its left neighbour is known, its right one
//   not yet);
//                             the even token after it costs 0: the pair names it
//   read from both sides: a hidden token costs ln V for each symbol in it that nothing seen tells
//   (UnknownSymbols)

#pragma once

#include <cstdint>
#include <vector>

#include "core/objective/text_sample.h"

namespace anyorder::bench {

struct NeighbourText {
  int64_t symbols = 8;  // V

  static constexpr int32_t kFirstId = 9;  // after the vocabulary's special pieces
  static constexpr int32_t kClassId = 3;
  static constexpr int32_t kMaskId = 6;
  int64_t vocab_size() const { return kFirstId + symbols * (1 + symbols); }

  // SampleKind::kContiguous, the first token even.
  TextSample Window(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
                    int64_t step) const;
  // SampleKind::kMaskedPairs: seq_len - 1 tokens, the first even, and CLS; BERT's targets, all of
  // them hidden behind `<mask>`.
  TextSample Masked(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
                    int64_t step) const;
};

// Of tokens, the first of them even, of which those with `hidden` are not seen: how many of a
// hidden token's symbols (one of an even token, two of an odd one) are told neither by an even
// token nor by a pair that is seen; 0 for tokens that are seen. Those symbols are independent and
// uniform, so a token's entropy is their number times ln V.
std::vector<uint8_t> UnknownSymbols(const std::vector<uint8_t>& hidden);

}  // namespace anyorder::bench
