// The order in which texts were written, as a file: what `anyorder generate --trace` writes and
// `anyorder show --trace` draws. One JSON object a text and line; README.md has its fields.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct Trace {
  int64_t prompt = 1;                      // its number, from 1
  int64_t rank = 1;                        // of the text among those of its prompt, from 1
  std::string method;                      // WriteMethod's name
  std::vector<std::string> prompt_pieces;  // positions [0, their number)
  int64_t passes = 0;                      // of the network
  std::vector<ShownToken> written;         // in the order of writing; NaN where a number is unknown
};

// More of a text are refused: prompt and written tokens each, and passes.
inline constexpr int64_t kMostTraceTokens = int64_t{1} << 20;

// One line, its end included. What is no UTF-8 becomes U+FFFD, since JSON cannot hold it (a token
// of a byte-level vocabulary may be a part of a character); numbers that are not finite are null.
std::string TraceLine(const Trace& trace);

// All texts of a file, at least one. Errors: I/O; DataLoss with file and line for anything that
// TraceLine does not write: another kind of value, a number out of bounds, a position of the prompt
// or one that is written twice, passes that decrease or of which there are more than were made.
// Fields that it does not know are passed over.
absl::StatusOr<std::vector<Trace>> ReadTraces(const std::string& path);

}  // namespace anyorder::launcher
