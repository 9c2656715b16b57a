#include "data/prep/examples/example_labels.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"

#include "core/base/file_system.h"
#include "core/base/status.h"
#include "data/prep/byte_source.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/prep_plan.h"

namespace anyorder::data {
namespace {

// Bytes that are no text say nothing about a label.
constexpr InvalidUtf8 kInvalidUtf8 = InvalidUtf8::kReplace;

class LabelLines {
 public:
  explicit LabelLines(bool has_groups) : has_groups_(has_groups) {}

  void Start(ExampleTask kind, const std::vector<std::string>& classes) {
    nlohmann::json line = {{"kind", ExampleTaskName(kind)}};
    if (!classes.empty()) line["classes"] = classes;
    Append(line);
  }

  absl::Status Add(const std::string& where, const WrittenExample& example) {
    if (text_.empty()) Start(example.task, {});
    nlohmann::json line = {{"where", where}};
    if (!example.id.empty()) line["id"] = example.id;
    if (has_groups_) line["group"] = example.parts[0];
    if (example.class_name) line["class"] = *example.class_name;
    if (example.choice >= 0) line["choice"] = example.choice;
    if (example.score) line["score"] = *example.score;
    if (example.answers) {
      nlohmann::json& answers = line["answers"] = nlohmann::json::array();
      for (const OriginalAnswer& answer : *example.answers) answers.push_back(answer.text);
    }
    if (!example.tags.empty()) line["tags"] = example.tags;
    Append(line);
    return absl::OkStatus();
  }

  const std::string& text() const { return text_; }

 private:
  // File names may be any bytes.
  void Append(const nlohmann::json& line) {
    absl::StrAppend(&text_, line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                    "\n");
  }

  const bool has_groups_;
  std::string text_;
};

absl::Status ReadOfficial(const ExampleLabelOptions& options, LabelLines& lines) {
  ANYORDER_ASSIGN_OR_RETURN(const OfficialTask* task, FindOfficialTask(options.task));
  lines.Start(task->kind, task->classes);
  OfficialReading reading(*task, options.input, LetterCase::kCased, kInvalidUtf8,
                          [&](const std::string& where, const WrittenExample& example) {
                            return lines.Add(where, example);
                          });
  return task->read(reading);
}

absl::Status ReadWritten(const ExampleLabelOptions& options, LabelLines& lines) {
  ANYORDER_RETURN_IF_ERROR(CheckFieldNames(options.names));
  ANYORDER_ASSIGN_OR_RETURN(const InputFiles input,
                            FindInputFiles({options.input}, InputUse::kExamples));
  for (const InputFile& file : input.files) {
    ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                              OpenByteSource(file.path, file.compression, 0, file.stored_bytes));
    ANYORDER_RETURN_IF_ERROR(ReadExamples(
        *source,
        {file.path, file.kind, options.names, options.table, LetterCase::kCased, kInvalidUtf8},
        [&](uint64_t line, const WrittenExample& example) {
          return lines.Add(absl::StrCat(file.path, ":", line), example);
        }));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteExampleLabels(const ExampleLabelOptions& options, const std::string& path) {
  LabelLines lines(options.has_groups);
  ANYORDER_RETURN_IF_ERROR(options.task.empty() ? ReadWritten(options, lines)
                                                : ReadOfficial(options, lines));
  return WriteFileAtomically(path, lines.text());
}

}  // namespace anyorder::data
