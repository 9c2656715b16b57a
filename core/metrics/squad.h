// Scores of answers to the questions of SQuAD, as the official evaluate-v1.1.py and
// evaluate-v2.0.py compute them, to the last bit where sums run over the same order of questions
// (with Python before 3.12, whose sum() does not compensate).

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace anyorder::metrics {

// Lower case; ASCII punctuation dropped; the words a, an, the dropped; white space as single
// spaces, none at the ends. The result is what answers are compared as.
std::string NormalizeAnswer(std::string_view answer);

enum class SquadVersion {
  k1_1,
  k2_0,  // answers that are empty when normalized do not count, two empty answers have F1 = 1
};

// The scores of one question.
struct SquadScore {
  double exact = 0;  // 0 or 1
  double f1 = 0;     // of the words of both, as bags
};

// The best of `prediction` against each of `answers`; of 2.0, none of them is the empty answer.
// REQUIRES of 1.1: one answer at least.
SquadScore ScoreAnswer(std::string_view prediction, absl::Span<const std::string> answers,
                       SquadVersion version);

struct SquadQuestion {
  std::vector<std::string> answers;  // as given; none: it has no answer
  std::string prediction;            // "": it is said to have none
  // Higher the likelier it is that there is no answer: "na_prob".
  double null_score = 0;
};

struct SquadMeans {
  double exact = 0;  // per cent
  double f1 = 0;     // per cent
  size_t total = 0;
};

// Over which null score a question is best said to have no answer.
struct SquadThreshold {
  double best = 0;       // per cent
  double threshold = 0;  // 0 as long as no answer is better than none at all
};

struct SquadReport {
  SquadMeans all;
  std::optional<SquadMeans> has_answer;  // of the questions with an answer, if there are any
  std::optional<SquadMeans> no_answer;
  SquadThreshold best_exact;
  SquadThreshold best_f1;
};

// `null_threshold`: a question with a greater null score is counted as said to have no answer; best
// thresholds do not depend on it. Equal null scores keep the order of `questions` there. REQUIRES
// one question at least.
SquadReport ScoreSquad(absl::Span<const SquadQuestion> questions, SquadVersion version,
                       std::optional<double> null_threshold);

}  // namespace anyorder::metrics
