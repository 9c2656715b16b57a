// A part of a passage, or of a window of it, that may be the answer to a question: what heads say
// and data/sampling/span_answers.h merges.

#pragma once

#include <cstdint>

namespace anyorder {

struct SpanCandidate {
  // Tokens [begin, end), counted from the first of the window.
  int32_t begin = 0;
  int32_t end = 0;
  // The log probability of the start, plus that of the end given it. With a simple head, where both
  // are apart, the sum of their logits, as BERT's released code compares spans of several windows.
  double log_probability = 0;
  bool operator==(const SpanCandidate&) const = default;
};

}  // namespace anyorder
