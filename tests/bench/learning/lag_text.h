// Text in which the only regularity is a copy at a known distance, so that what any model can reach
// is known in closed form.
//
// x(t) = x(t - lag) with probability p, else uniform over V symbols; the first `lag` symbols are
// uniform. A stationary process: any `lag` consecutive symbols are independent and uniform, so
//   a model that does not see x(t - lag):  loss >= ln V
//   a model that sees it: loss >= H = -m ln m - (1 - m) ln((1 - m) / (V - 1)), m = p + (1 - p) / V

#pragma once

#include <cstdint>

#include "core/objective/text_sample.h"

namespace anyorder::bench {

struct LagText {
  int64_t symbols = 32;  // V
  int64_t lag = 24;
  double copies = 0.8;  // p

  static constexpr int32_t kFirstId = 9;  // after the vocabulary's special pieces
  int64_t vocab_size() const { return kFirstId + symbols; }
  double BlindEntropy() const;     // ln V
  double InformedEntropy() const;  // H

  // The symbol at `position` of the text of `lane`: a pure function. About 1 / (1 - p) draws.
  int32_t Token(uint64_t seed, int64_t lane, int64_t position) const;
  // Tokens [step * seq_len, (step + 1) * seq_len) and the one after each.
  TextSample Segment(int64_t seq_len, uint64_t seed, int64_t lane, int64_t step) const;
};

}  // namespace anyorder::bench
