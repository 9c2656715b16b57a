// The labels and identifiers of examples, without a vocabulary and without their texts: what
// predictions are scored against, and called by.

#pragma once

#include <string>

#include "absl/status/status.h"

#include "data/prep/examples/example_reader.h"
#include "data/prep/text_reader.h"

namespace anyorder::data {

struct ExampleLabelOptions {
  std::string input;  // as one `inputs` of ExamplePrepOptions
  std::string task;   // whose official files it names; empty: labelled examples
  FieldNames names;   // of labelled examples, as `table`
  TableOptions table;
  bool has_groups = false;  // write the first text of each, by which ranking tasks group them
};

// Writes JSON lines to `path`: first an object with `kind` (ExampleTaskName) and, of an official
// task, `classes`; then one for each example in the order of the dataset that `prep` makes of
// `input`: `where` (file and line), `id`, `group`, and its label as `class`, `choice`, `score`,
// `answers` or `tags`, each if there is one. Errors: as RunExamplePrep, as far as it does not
// encode.
absl::Status WriteExampleLabels(const ExampleLabelOptions& options, const std::string& path);

}  // namespace anyorder::data
