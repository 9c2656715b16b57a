// The labels and identifiers of examples, without a vocabulary and without their texts: what
// predictions are scored against, and called by.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/config/task_config.h"
#include "data/prep/examples/example_reader.h"
#include "data/prep/text_reader.h"

namespace anyorder::data {

struct ExampleLabelOptions {
  std::string input;  // as one `inputs` of ExamplePrepOptions
  std::string task;   // whose official files it names; empty: labelled examples
  FieldNames names;   // of labelled examples, as `table`
  TableOptions table;
  bool has_groups = false;  // keep the first text of each, by which ranking tasks group them
};

struct ExampleLabel {
  std::string where;                 // file and line; "" of a dataset
  std::string id;                    // what the official files call it; "": nothing
  std::optional<std::string> label;  // class by its name, or choice in digits
  std::optional<double> score;
  std::string group;  // of ranking tasks: the question whose candidate it is
  // Of kSpans; empty: the question has no answer; nullopt: it is not known.
  std::optional<std::vector<std::string>> answers;
  std::vector<std::string> tags;  // of kTokens, of each word; none: not known
  bool is_disputed = false;       // as in WrittenExample

  // False of test data.
  bool is_known() const { return label || score || answers || !tags.empty() || is_disputed; }
};

struct ExampleLabels {
  ExampleTask task = ExampleTask::kClassification;
  std::vector<std::string> classes;  // of an official task
  std::vector<ExampleLabel> examples;
};

// In the order of the dataset that `prep` makes of `input`. Errors: DataLoss if there is no
// example; those of RunExamplePrep, as far as it does not encode.
absl::StatusOr<ExampleLabels> ReadExampleLabels(const ExampleLabelOptions& options);

}  // namespace anyorder::data
