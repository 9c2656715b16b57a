// What a task's head says of each lane (task_head.h).

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace anyorder {

// A part of a lane's passage that may be the answer: its tokens, counted from the passage's first.
struct SpanCandidate {
  int32_t begin = 0;
  int32_t end = 0;  // half open
  // Conditional: log probability of the start plus that of the end given it. Simple: the sum of
  // both logits, as BERT's released code compares spans of several windows.
  double score = 0;
  bool operator==(const SpanCandidate&) const = default;
};

// What the head says of one lane.
struct TaskResult {
  double loss = 0;  // 0 without a label
  // Whether the likeliest class, choice or span is the label; of scores and without a label: not
  // said. In training a span's end is judged by the true start.
  std::optional<bool> is_correct;
  std::vector<float> logits;  // of classes, or of as many choices as there are; or the one score
  // In evaluation, the best first: spans, and how much likelier none is the answer: the logit of
  // the answer class, or without one the score of CLS as start and end less the best span's.
  std::vector<SpanCandidate> spans;
  double no_answer = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace anyorder
