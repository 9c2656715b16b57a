#include "data/prep/examples/example_labels.h"

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/prep_plan.h"

namespace anyorder::data {
namespace {

// Bytes that are no text say nothing about a label.
constexpr ExampleCleaning kCleaning = {.invalid_utf8 = InvalidUtf8::kReplace};

ExampleLabel LabelOf(const std::string& where, const WrittenExample& example, bool has_groups) {
  ExampleLabel label{.where = where,
                     .id = example.id,
                     .score = example.score,
                     .tags = example.tags,
                     .is_disputed = example.is_disputed};
  if (has_groups) label.group = example.parts[0];
  if (example.class_name) label.label = *example.class_name;
  if (example.choice >= 0) label.label = absl::StrCat(example.choice);
  if (!example.answers) return label;
  label.answers.emplace();
  for (const OriginalAnswer& answer : *example.answers) label.answers->push_back(answer.text);
  return label;
}

}  // namespace

absl::StatusOr<ExampleLabels> ReadExampleLabels(const ExampleLabelOptions& options) {
  ExampleLabels labels;
  const auto take = [&](const std::string& where, const WrittenExample& example) {
    if (labels.examples.empty()) labels.task = example.task;
    labels.examples.push_back(LabelOf(where, example, options.has_groups));
    return absl::OkStatus();
  };
  if (!options.task.empty()) {
    ASSIGN_OR_RETURN(const OfficialTask* task, FindOfficialTask(options.task));
    labels.classes = task->classes;
    OfficialReading reading(*task, options.input, kCleaning, take);
    RETURN_IF_ERROR(task->read(reading));
  } else {
    RETURN_IF_ERROR(CheckFieldNames(options.names));
    ASSIGN_OR_RETURN(const InputFiles input,
                     FindInputFiles({options.input}, {InputUse::kExamples}));
    for (const InputFile& file : input.files)
      RETURN_IF_ERROR(ReadExamples(file, {options.names, options.table, kCleaning}, take));
  }
  if (labels.examples.empty()) return DataLoss("'", options.input, "' holds no example");
  return labels;
}

}  // namespace anyorder::data
