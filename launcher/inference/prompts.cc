#include "launcher/inference/prompts.h"

#include <nlohmann/json.hpp>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::launcher {
namespace {

// The encoder takes no NUL, and would name a line of a file that is not the user's.
absl::StatusOr<std::string> WithoutNul(std::string prompt, const std::string& where) {
  const size_t at = prompt.find('\0');
  if (at == std::string::npos) return prompt;
  return FailedPrecondition(where, ": byte ", at,
                            " of the prompt is NUL, which is not text; remove it");
}

absl::StatusOr<std::string> PromptOf(const std::string& line, bool is_json,
                                     const std::string& where) {
  if (is_json) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool has_text =
        object.is_object() && object.contains("text") && object["text"].is_string();
    if (!has_text) {
      return FailedPrecondition(where,
                                ": not a JSON object with a string field \"text\"; fix the line");
    }
    return WithoutNul(object["text"].get<std::string>(), where);
  }
  // A quick check that leaves the exact one to the encoder: what cannot be put into JSON is no
  // UTF-8.
  const std::string replaced =
      nlohmann::json(line).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
  const bool is_text = nlohmann::json::parse(replaced).get<std::string>() == line;
  if (is_text) return WithoutNul(line, where);
  return FailedPrecondition(where, ": the line is not valid UTF-8; convert the file");
}

}  // namespace

absl::StatusOr<std::vector<PromptLine>> ReadPromptLines(const std::string& path,
                                                        bool finds_objects) {
  const bool is_stdin = path == "-";
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(is_stdin ? "/dev/stdin" : path));
  const std::string name = is_stdin ? "standard input" : path;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  std::vector<PromptLine> prompts;
  for (const absl::string_view whole : lines) {
    const std::string line(absl::StripSuffix(whole, "\r"));
    const bool is_json =
        absl::EndsWith(path, ".jsonl") || (finds_objects && absl::StartsWith(line, "{\""));
    PromptLine& prompt = prompts.emplace_back();
    prompt.place = absl::StrCat(name, ":", prompts.size());
    if (is_json) prompt.object = line;
    ANYORDER_ASSIGN_OR_RETURN(prompt.text, PromptOf(line, is_json, prompt.place));
  }
  if (!prompts.empty()) return prompts;
  return FailedPrecondition(
      name, " holds no prompt; write one per line (an empty line is an empty prompt)");
}

absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path) {
  ANYORDER_ASSIGN_OR_RETURN(std::vector<PromptLine> lines,
                            ReadPromptLines(path, /*finds_objects=*/false));
  std::vector<std::string> prompts;
  for (PromptLine& line : lines) prompts.push_back(std::move(line.text));
  return prompts;
}

}  // namespace anyorder::launcher
