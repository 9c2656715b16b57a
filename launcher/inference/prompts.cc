#include "launcher/inference/prompts.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/prep/cleaning.h"

namespace anyorder::launcher {
namespace {

using LineJson = nlohmann::json;

absl::StatusOr<std::string> PlainText(absl::string_view line, absl::string_view name) {
  const size_t at = data::FirstInvalidByte({line.data(), line.size()});
  if (at == line.size()) return std::string(line);
  return FailedPrecondition("byte ", at, " of ", name,
                            line[at] == '\0' ? " is NUL, which is not text; remove it"
                                             : " is not valid UTF-8; convert the file");
}

absl::Status ReadLine(absl::string_view line, bool is_object, InputLine& read) {
  if (!is_object) {
    ASSIGN_OR_RETURN(read.text, PlainText(line, "the line"));
    return absl::OkStatus();
  }
  read.object = TryParseJson<LineJson>(line);
  if (read.object.is_object()) return absl::OkStatus();
  return FailedPrecondition(WhyNoJsonObject(line), "; fix the line");
}

}  // namespace

absl::StatusOr<std::vector<InputLine>> ReadInputLines(const std::string& path,
                                                      ObjectLines objects) {
  const bool is_stdin = path == "-";
  ASSIGN_OR_RETURN(const std::string text,
                   ReadWholeFile(is_stdin ? "/dev/stdin" : path, kMaxTextBytes));
  const bool are_objects =
      absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".ndjson") ||
      (absl::StartsWith(text, "{") &&
       (is_stdin ? objects == ObjectLines::kByFirstLine : absl::EndsWith(path, ".json")));
  std::vector<absl::string_view> all = absl::StrSplit(text, '\n');
  if (all.back().empty()) all.pop_back();
  std::vector<InputLine> lines;
  for (size_t n = 0; n < all.size(); ++n) {
    const absl::string_view line = absl::StripSuffix(all[n], "\r");
    if (are_objects && line.empty()) continue;
    InputLine& read = lines.emplace_back();
    read.number = static_cast<int64_t>(n) + 1;
    read.place = absl::StrCat(InputName(path), ":", read.number);
    const bool has_sign = objects == ObjectLines::kBySign && absl::StartsWith(line, "{\"");
    RETURN_IF_ERROR(Annotate(ReadLine(line, are_objects || has_sign, read), read.place));
  }
  return lines;
}

absl::StatusOr<std::string> TextOf(const LineJson& value, const std::string& name) {
  if (!value.is_string()) return FailedPrecondition("'", name, "' is not a string");
  return PlainText(value.get<std::string>(), absl::StrCat("'", name, "'"));
}

absl::StatusOr<std::string> TextField(const LineJson& object, const std::string& name) {
  const LineJson* const field = FindMember(object, name);
  if (field == nullptr) return FailedPrecondition("there is no '", name, "'");
  return TextOf(*field, name);
}

absl::StatusOr<std::vector<InputLine>> ReadPromptLines(const std::string& path,
                                                       ObjectLines objects) {
  ASSIGN_OR_RETURN(std::vector<InputLine> lines, ReadInputLines(path, objects));
  for (InputLine& line : lines) {
    if (line.object.is_null()) continue;
    ASSIGN_OR_RETURN(line.text, Annotate(TextField(line.object, "text"), line.place));
  }
  if (!lines.empty()) return lines;
  return FailedPrecondition(
      InputName(path), " holds no prompt; write one per line (an empty line is an empty prompt)");
}

absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<InputLine> lines, ReadPromptLines(path, ObjectLines::kNowhere));
  std::vector<std::string> prompts;
  for (InputLine& line : lines) prompts.push_back(std::move(line.text));
  return prompts;
}

}  // namespace anyorder::launcher
