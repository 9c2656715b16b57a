// Which tokens of a half sequence are targets: spans of neighbouring tokens (XLNet, section 2.3;
// the procedure of the released data_utils.py).

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "core/base/philox.h"
#include "core/config/sampling_config.h"

namespace anyorder::data {

// Span lengths 1..max_span with probability proportional to 1 / length.
class SpanLengths {
 public:
  explicit SpanLengths(int64_t max_span);
  int64_t Draw(RandomStream& random) const;

 private:
  std::vector<double> cumulative_;  // of lengths 1, 2, ...; the last is 1
};

// One half of a sequence, both arrays in reading order of the text.
struct HalfText {
  absl::Span<const uint8_t> word_starts;
  absl::Span<const uint8_t> functional;  // SEP, CLS
};

// Positions [begin, end) of a half.
struct TokenSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

// Walks along the half: draws a length l, places a span at the first word start after a random part
// of its context of l * mask_alpha / mask_beta tokens, and goes on after the rest of that context,
// until `goal` tokens are in spans or the next span would reach the end of the half. Spans come in
// order and do not touch.
//   kSubword: a span is l tokens, l cut to what the goal leaves.
//   kWord: a span is l words, or as many whole words as the goal leaves; it never ends inside a
//   word.
//   kSingle: no spans.
// Without functional_targets no span begins at or goes past a functional position.
std::vector<TokenSpan> DrawSpans(const HalfText& half, int64_t goal, const SamplingConfig& config,
                                 const SpanLengths& lengths, RandomStream& random);

// Exactly `goal` ones: DrawSpans, and single positions, drawn uniformly, for what they leave of the
// goal. REQUIRES goal <= positions that may be chosen (without functional_targets: those that are
// not functional).
std::vector<uint8_t> DrawSpanMask(const HalfText& half, int64_t goal, const SamplingConfig& config,
                                  const SpanLengths& lengths, RandomStream& random);

}  // namespace anyorder::data
