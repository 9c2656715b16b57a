// Which tokens a pseudo-masked language model predicts, and in which order (UniLMv2: Bao et al.
// 2020, section 3.4 and algorithm 1). Blocks are drawn one after the other; the order of drawing is
// the factorisation order.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "core/base/philox.h"

namespace anyorder {

// One step of the factorisation: tokens [begin, end).
struct TokenBlock {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const TokenBlock& other) const = default;
};

// Defaults: the published setting.
struct BlockRule {
  double fraction = 0.15;  // of all tokens of the sequence: drawing stops once as many are masked
  double span_fraction =
      0.4;  // of the draws: min_span..max_span tokens, all lengths alike; else one token
  int64_t min_span = 2;
  int64_t max_span = 6;
  int64_t most = 85;  // tokens in all; the last block may go beyond the goal, but not beyond this

  // Tokens after which drawing stops in a sequence of `size` tokens.
  int64_t Goal(int64_t size) const;
  // The most tokens that can come out. With 512 tokens and the published rule 82, so that `most`
  // binds in no draw.
  int64_t Most(int64_t size) const;
};

// Blocks in the order of drawing: a begin uniform over the sequence and a length, accepted if the
// block stays in the sequence, touches no block before it and no special token, and does not go
// above `most`. Since special tokens end segments, no block reaches into another. `is_special`
// [size]: 1 where a token may not be predicted.
// REQUIRES: span_fraction < 1, Goal(size) <= most; Goal(size) tokens are not special, so that
// single tokens can always fill up what spans leave.
std::vector<TokenBlock> DrawBlocks(const BlockRule& rule, absl::Span<const uint8_t> is_special,
                                   RandomStream& random);

}  // namespace anyorder
