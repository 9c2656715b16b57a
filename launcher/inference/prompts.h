// What `anyorder generate` and `embed` read.

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

}  // namespace anyorder::launcher
