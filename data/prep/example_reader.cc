#include "data/prep/example_reader.h"

#include <nlohmann/json.hpp>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostChoices = 1 << 10;

// The text fields of each task; choices come behind those of kMultipleChoice.
struct TaskFields {
  ExampleTask task;
  std::array<const char*, 2> texts;
};
constexpr TaskFields kTasks[] = {
    {ExampleTask::kClassification, {"text", nullptr}},
    {ExampleTask::kEntailment, {"premise", "hypothesis"}},
    {ExampleTask::kSimilarity, {"a", "b"}},
    {ExampleTask::kMultipleChoice, {"context", nullptr}},
    {ExampleTask::kGeneration, {"source", "target"}},
};
constexpr char kKnownFields[] =
    "text; premise and hypothesis; a and b; context and choices; source and target";

// What one line says.
class LineReader {
 public:
  LineReader(const ExampleReadOptions& options, uint64_t line) : options_(options), line_(line) {}

  absl::Status Read(std::string_view text, WrittenExample& example) {
    std::string repaired;
    if (FirstInvalidByte(text) != text.size()) {
      if (options_.invalid_utf8 == InvalidUtf8::kError)
        return Bad(
            "invalid UTF-8 or NUL in the line; repair the file or pass --invalid-utf8 replace");
      AppendWithReplacements(text, repaired);
      text = repaired;
    }
    const Json record = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    if (record.is_discarded()) return Bad("not valid JSON; repair the line or remove it");
    if (!record.is_object()) return Bad("not a JSON object; write one example per line");
    for (const TaskFields& task : kTasks) {
      if (record.contains(task.texts[0])) return ReadTask(record, task, example);
    }
    return Bad("the object has none of the fields of an example: ", kKnownFields);
  }

 private:
  template <typename... Parts>
  absl::Status Bad(const Parts&... what) const {
    return DataLoss(options_.path, ":", line_, ": ", what...);
  }

  absl::Status ReadTask(const Json& record, const TaskFields& task, WrittenExample& example) {
    example.task = task.task;
    for (const char* name : task.texts) {
      if (name == nullptr) continue;
      const auto field = record.find(name);
      if (field == record.end()) return Bad("the object has no field '", name, "'");
      ANYORDER_RETURN_IF_ERROR(ReadText(*field, name, example));
    }
    if (task.task == ExampleTask::kMultipleChoice)
      ANYORDER_RETURN_IF_ERROR(ReadChoices(record, example));
    const auto label = record.find("label");
    if (label == record.end() || label->is_null() || task.task == ExampleTask::kGeneration)
      return absl::OkStatus();
    return task.task == ExampleTask::kMultipleChoice ? ReadChoice(*label, example)
                                                     : ReadClass(*label, example);
  }

  absl::Status ReadText(const Json& field, const std::string& name, WrittenExample& example) {
    if (!field.is_string()) return Bad("the field '", name, "' is not a string");
    const std::string* text = &field.get_ref<const std::string&>();
    std::string repaired;
    if (FirstInvalidByte(*text) != text->size()) {  // \u0000 is the one fault JSON lets through
      if (options_.invalid_utf8 == InvalidUtf8::kError)
        return Bad("the field '", name, "' holds NUL; repair it or pass --invalid-utf8 replace");
      AppendWithReplacements(*text, repaired);
      text = &repaired;
    }
    if (text->size() > kMaxSentenceBytes) {
      return Bad("the field '", name, "' has ", text->size(), " bytes but may have ",
                 kMaxSentenceBytes, "; shorten it: no network reads that much of it");
    }
    std::string cleaned;
    CleanLine(*text, options_.letter_case, cleaned);
    if (cleaned.empty()) return Bad("the field '", name, "' holds no text");
    example.parts.push_back(std::move(cleaned));
    return absl::OkStatus();
  }

  absl::Status ReadChoices(const Json& record, WrittenExample& example) {
    const auto choices = record.find("choices");
    if (choices == record.end()) return Bad("the object has no field 'choices'");
    if (!choices->is_array() || choices->size() < 2 || choices->size() > kMostChoices)
      return Bad("the field 'choices' is not a list of 2 to ", kMostChoices, " texts");
    for (size_t i = 0; i < choices->size(); ++i)
      ANYORDER_RETURN_IF_ERROR(ReadText((*choices)[i], absl::StrCat("choices[", i, "]"), example));
    return absl::OkStatus();
  }

  absl::Status ReadChoice(const Json& label, WrittenExample& example) {
    const size_t choices = example.parts.size() - 1;
    const bool is_choice = label.is_number_unsigned() && label.get<uint64_t>() < choices;
    if (!is_choice) {
      // Only a number is printed: printing recurses, and a line has room for a deep nest.
      return Bad("the field 'label' is ", label.is_number() ? label.dump() : label.type_name(),
                 ", not the number of a choice, 0 to ", choices - 1);
    }
    example.choice = label.get<int32_t>();
    return absl::OkStatus();
  }

  absl::Status ReadClass(const Json& label, WrittenExample& example) {
    if (label.is_string() && !label.get_ref<const std::string&>().empty()) {
      example.class_name = label.get<std::string>();
    } else if (label.is_number_integer() || label.is_boolean()) {
      example.class_name = label.dump();
    } else {
      return Bad("the field 'label' is not the name or the whole number of a class");
    }
    return absl::OkStatus();
  }

  const ExampleReadOptions& options_;
  const uint64_t line_;
};

}  // namespace

absl::Status ReadExamples(
    ByteSource& source, const ExampleReadOptions& options,
    const std::function<absl::Status(uint64_t line, const WrittenExample&)>& take) {
  const auto take_line = [&](const TextPiece& piece) -> absl::Status {
    if (!piece.is_line()) {
      return DataLoss(options.path, ":", piece.line, ": a line longer than ",
                      kMaxJsonLineBytes >> 20, " MiB; write one example per line");
    }
    const bool is_blank = piece.text.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
    if (is_blank) return absl::OkStatus();
    WrittenExample example;
    ANYORDER_RETURN_IF_ERROR(LineReader(options, piece.line).Read(piece.text, example));
    return take(piece.line, example);
  };
  return ReadPieces(source, {.max_bytes = kMaxJsonLineBytes}, take_line).status();
}

}  // namespace anyorder::data
