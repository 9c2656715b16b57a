// What a task's head says of each lane (task_head.h).

#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/objective/span_candidate.h"

namespace anyorder {

// What the head says of one lane.
struct TaskResult {
  double loss = 0;  // 0 without a label
  // Whether the likeliest class, choice or span is the label; of scores and without a label: not
  // said. In training a span's end is judged by the true start.
  std::optional<bool> is_correct;
  // In evaluation of spans: F1 of the tokens of the likeliest one and of the window's answer; 1
  // where both are none, 0 where one is.
  double span_f1 = 0;
  std::vector<float> logits;  // of classes, or of as many choices as there are; or the one score
  // In evaluation of spans: the best, the best one first; the same of CLS as start and end, which
  // says that none is the answer; and the logit of that, of a head with an answer class, else NaN.
  std::vector<SpanCandidate> spans;
  double null_log_probability = 0;
  double answer_logit = std::numeric_limits<double>::quiet_NaN();

  // Whether none of the spans is likelier than that there is no answer.
  bool says_none() const {
    if (spans.empty()) return true;
    if (!std::isnan(answer_logit)) return answer_logit > 0;
    return null_log_probability > spans[0].log_probability;
  }
};

}  // namespace anyorder
