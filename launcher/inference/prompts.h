// What `anyorder generate`, `fill` and `embed` read.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

// The prompts of a file; "-" is standard input. A .jsonl holds an object with a field `text` in
// each line; of any other file, and of standard input, each line is a prompt. An empty line is an
// empty prompt.
// FailedPrecondition, naming the line, for what is no prompt, and for a file without any.
absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path);

struct PromptLine {
  std::string text;
  std::string object;  // the line, if it is a JSON object; else ""
  std::string place;   // "FILE:LINE"
};
// The same with what else a line says. `finds_objects`: a line that begins with {" is an object in
// any file, and on standard input, too.
absl::StatusOr<std::vector<PromptLine>> ReadPromptLines(const std::string& path,
                                                        bool finds_objects);

}  // namespace anyorder::launcher
