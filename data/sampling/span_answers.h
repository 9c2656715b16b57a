// From what a network says of the windows of a passage to answers in the words of the passage, as
// write_predictions in XLNet's and BERT's run_squad.py does it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/objective/text_sample.h"
#include "data/dataset/example_origins.h"

namespace anyorder::data {

// What is said of tokens [window_begin, window_begin + num_tokens) of a passage.
struct WindowPrediction {
  int64_t window_begin = 0;
  int64_t num_tokens = 0;
  std::vector<SpanCandidate> candidates;
  // How likely it is that there is no answer, of networks with a class for that: a logit.
  double answer_logit = std::numeric_limits<double>::quiet_NaN();
  // For networks without one: the log probability of the span that is [CLS] alone.
  double null_log_probability = std::numeric_limits<double>::quiet_NaN();
};

struct SpanAnswerOptions {
  int64_t max_tokens = 64;  // max_answer_length of XLNet's run_squad.py
  size_t n_best = 20;       // n_best_size of BERT's
};

struct SpanAnswer {
  std::string text;            // exactly as it stands in the passage
  CharacterRange characters;   // where
  double log_probability = 0;  // SpanCandidate's
};

struct QuestionPrediction {
  std::vector<SpanAnswer> answers;  // no two with the same text, the best first; may be none
  // Higher the likelier it is that there is no answer: the smallest of the windows' answer_logit;
  // or of their null_log_probability, less the log probability of the best answer. NaN where
  // neither is known, or the latter without any answer.
  double null_score = std::numeric_limits<double>::quiet_NaN();
};

// Merges the windows of one question. Of a token that is in several windows, spans that begin there
// count in the window with the most context alone ("max context": the smaller number of tokens on
// either side; then the longer window; then the first). Spans of more than max_tokens, or of white
// space, do not count. REQUIRES that windows lie in the passage, and candidates in their windows.
QuestionPrediction MergeWindows(const std::vector<WindowPrediction>& windows,
                                const OriginalPassage& passage, const SpanAnswerOptions& options);

}  // namespace anyorder::data
