// What is right: the labels that predictions are scored against, from the files of a task as they
// were published, from labelled examples, or from a dataset of them.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/config/task_config.h"
#include "launcher/inference/predictions.h"
#include "launcher/process/field_options.h"

namespace anyorder::launcher {

// What an example comes with, without its texts.
struct ExampleLabel {
  std::string where;                 // file and line; "" of a dataset
  std::string id;                    // what the official files call it; "": nothing
  std::optional<std::string> label;  // class by its name, or choice in digits
  std::optional<double> score;
  std::string group;  // of ranking tasks: the question whose candidate it is
  // Of kSpans; empty: the question has no answer; nullopt: it is not known.
  std::optional<std::vector<std::string>> answers;
  std::vector<std::string> tags;  // of kTokens, of each word; none: not known
  bool is_disputed = false;       // as in data::WrittenExample

  // False of test data.
  bool is_known() const { return label || score || answers || !tags.empty() || is_disputed; }
};

struct Gold {
  std::string path;
  // The name of an official task, also where a dataset remembers it; "": none.
  std::string task;
  ExampleTask kind = ExampleTask::kClassification;
  bool is_squad_2 = false;           // questions may have no answer
  std::vector<std::string> classes;  // in the order of their numbers; of choices none
  std::vector<ExampleLabel> examples;

  bool has_ids() const { return !examples.empty() && !examples[0].id.empty(); }
  LabelKind label_kind() const {
    if (kind == ExampleTask::kMultipleChoice) return LabelKind::kChoice;
    return !examples.empty() && examples[0].score ? LabelKind::kScore : LabelKind::kClass;
  }
};

// Whether `task` compares candidates of one question ("qnli-rank"). Its Gold holds them one by one,
// with their question.
bool IsRankingTask(const std::string& task);

// `path`: a dataset; with `task` official files, or a .jsonl of labelled examples; else labelled
// examples with `fields`. Errors: those of reading; InvalidArgument for a dataset of another task;
// FailedPrecondition for what has no labels to score by, such as generation.
absl::StatusOr<Gold> ReadGold(const std::string& task, const std::string& path,
                              const FieldOptions& fields);

// The prediction of each example, in their order; by identifier, or by number where the examples
// have none (the index of a GLUE file is one less). Errors: DataLoss that names the first few
// examples without a prediction, or predictions without an example.
absl::StatusOr<std::vector<const Prediction*>> MatchPredictions(
    const Gold& gold, const std::vector<Prediction>& predictions);

}  // namespace anyorder::launcher
