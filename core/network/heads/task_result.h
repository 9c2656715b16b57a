// What a task's head says of each lane (task_head.h).

#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/objective/text_sample.h"

namespace anyorder {

// What the head says of one lane.
struct TaskResult {
  double loss = 0;  // 0 without a label
  // How many classes, choices, spans or tags have a label, and for how many of them the likeliest
  // is the label; of scores: none. In training a span's end is judged by the true start.
  int64_t num_judged = 0;
  int64_t num_correct = 0;
  // In evaluation of spans: F1 of the tokens of the likeliest one and of the window's answer; 1
  // where both are none, 0 where one is.
  double span_f1 = 0;
  // The logits of classes, or of as many choices as there are; or the one score. With tags, those
  // of the classes of each word, one word after the other, as many as fit.
  std::vector<float> logits;
  std::vector<int32_t> tags;  // with tags: the likeliest class of each of these words
  // In evaluation of spans: those that were tried, the best one first; the same of CLS as start and
  // end, which says that none is the answer; and the logit of that, of a head with an answer class,
  // else NaN.
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
