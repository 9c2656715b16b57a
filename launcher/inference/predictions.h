// What a fine-tuned network says of examples, as `anyorder predict` writes it (README.md, "What
// predict reads and writes"), as it is read again, also from the files that benchmarks are sent,
// and as several networks say it together.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "data/sampling/span_answers.h"

namespace anyorder::launcher {

struct Prediction {
  int64_t number = 0;  // from 1, in the order of the input; 0: not known
  std::string id;      // what the official files call the example; "": nothing
  std::string text;    // as it was typed; "" of examples from a file or of several parts

  // For classes and choices, a probability for each. `classes` are their names; empty of choices,
  // which are numbers.
  std::vector<std::string> classes;
  std::vector<double> probabilities;
  int32_t given_label = -1;  // that the example came with

  // For words that have tags, for each word a probability of each of `classes`; all 0 of one that
  // was not read. And the tags that the example came with, or none.
  std::optional<std::vector<std::vector<double>>> word_probabilities;
  std::vector<std::string> given_tags;

  // The score, for regression.
  std::optional<double> score;
  std::optional<double> given_score;

  // The answers to a question about a passage: the best first, no two of one text, of no characters
  // where those are not known; and how likely it is that there is no answer, in any unit. `answer`
  // is "" where that is what is said.
  std::optional<std::string> answer;
  std::vector<data::SpanAnswer> answers;
  std::optional<double> null_score;
  std::optional<std::vector<std::string>> given_answers;

  // The most probable class or choice, of equal ones the first. REQUIRES probabilities.
  size_t best() const;
  // The name of class or choice `i`, of choices its number in digits.
  std::string LabelName(size_t i) const { return classes.empty() ? std::to_string(i) : classes[i]; }
  // Of the most probable one. REQUIRES probabilities.
  std::string label() const { return LabelName(best()); }
  // The most probable tag of each word, of equal ones the first class. REQUIRES
  // word_probabilities.
  std::vector<std::string> tags() const;
};

// One line, with its end.
std::string PredictionLine(const Prediction& prediction);

// What a file without probabilities holds; what its second column means.
enum class LabelKind {
  kClass,   // a name
  kChoice,  // a letter, A for the first
  kScore,   // a number
};

// Either lines of PredictionLine; or an official file, which has no more than labels: a table
// "index<tab>prediction" (GLUE; of choices "id<tab>prediction"), whose labels get probability 1; or
// SQuAD's JSON object of answers by identifier. Which one it is, its first line says. (Of words
// there are lines only.) Errors: those of ReadWholeFile; DataLoss that names file and line, for an
// example that comes twice and a file without any, too.
absl::StatusOr<std::vector<Prediction>> ReadPredictions(const std::string& path, LabelKind kind);

// SQuAD's second file, null scores by identifier, put into `predictions`. Errors: as above, and
// DataLoss for a prediction that the file does not have.
absl::Status ReadNullScores(const std::string& path, std::vector<Prediction>& predictions);

// Predictions of several networks for the same examples become one: the mean of the probabilities,
// by name, those of words, too; of the scores and null scores; and of the probabilities of answers,
// by text, where an answer that a list does not have has 0 in it (of one text that comes twice the
// first counts). `answer` becomes the best answer. `names`: of the files, for errors. Errors:
// DataLoss if an example is missing in one, or is of another kind. REQUIRES one file at least.
absl::StatusOr<std::vector<Prediction>> AveragePredictions(
    std::vector<std::vector<Prediction>> files, const std::vector<std::string>& names);

// By what predictions and examples are told to be of one another: `id`, or where there is none the
// example's number in digits.
inline std::string ExampleKey(const std::string& id, int64_t number) {
  return id.empty() ? std::to_string(number) : id;
}

}  // namespace anyorder::launcher
