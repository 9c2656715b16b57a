// What `anyorder generate`, `fill`, `likelihood` and `embed` read: lines of text, or of JSON
// objects.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

struct InputLine {
  std::string place;      // "FILE:LINE"
  int64_t number = 1;     // LINE
  nlohmann::json object;  // null: a line of text
  std::string text;       // of such a line: UTF-8 without NUL
};

// Where objects stand besides in each line of a .jsonl, a .ndjson, and a .json that begins with {.
enum class ObjectLines {
  kNowhere,
  kBySign,       // lines that begin with {"
  kByFirstLine,  // each line of standard input, if its first one begins with {
};

// The name of an input in messages: "standard input" of "-".
inline std::string InputName(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

// The lines of a file; "-" is standard input. Where each line is an object empty ones are passed
// over. FailedPrecondition, naming the line, for what is no text or no object.
absl::StatusOr<std::vector<InputLine>> ReadInputLines(const std::string& path, ObjectLines objects);

// A value, called `name` in messages. FailedPrecondition, without a place, if it is no string, or
// has a NUL.
absl::StatusOr<std::string> TextOf(const nlohmann::json& value, const std::string& name);
// The field of that name; FailedPrecondition also if there is none.
absl::StatusOr<std::string> TextField(const nlohmann::json& object, const std::string& name);

// Reads such lines with the field `text` of objects. FailedPrecondition for a file without any.
absl::StatusOr<std::vector<InputLine>> ReadPromptLines(const std::string& path,
                                                       ObjectLines objects);
// The texts of those of kNowhere: an empty line is an empty prompt.
absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path);

}  // namespace anyorder::launcher
