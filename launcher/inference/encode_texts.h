// Texts as token ids.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// Token ids of each text, by the SentencePiece model `vocabulary`: `anyorder-prep encode` is
// started for it. What is not UTF-8 becomes U+FFFD, and NUL is refused. `letter_case` is "cased" or
// "uncased"; `doing` begins the message of an error, "encoding the prompts".
absl::StatusOr<std::vector<std::vector<int32_t>>> EncodeTexts(const std::vector<std::string>& texts,
                                                              const std::string& vocabulary,
                                                              const std::string& letter_case,
                                                              absl::string_view doing);

}  // namespace anyorder::launcher
