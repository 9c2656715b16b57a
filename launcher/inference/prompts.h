// What `anyorder generate` reads, and how it becomes tokens.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

// The prompts of a file; "-" is standard input. A .jsonl holds an object with a field `text` in
// each line; of any other file, and of standard input, each line is a prompt. An empty line is an
// empty prompt.
// FailedPrecondition, naming the line, for what is no prompt, and for a file without any.
absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path);

// Token ids of each prompt, by the SentencePiece model `vocabulary`: `anyorder-prep encode` is
// started for it. `letter_case` is "cased" or "uncased".
absl::StatusOr<std::vector<std::vector<int32_t>>> EncodePrompts(
    const std::vector<std::string>& prompts, const std::string& vocabulary,
    const std::string& letter_case);

}  // namespace anyorder::launcher
