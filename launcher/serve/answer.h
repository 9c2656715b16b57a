// Requests answered by a TextService, several at once where they ask for the same.

#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "launcher/texts/request_json.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// What requests are answered by a server that is being stopped: Unavailable; and those whose answer
// is not there at their deadline: DeadlineExceeded.
inline absl::Status StoppedError() { return absl::UnavailableError("the server is being stopped"); }
inline absl::Status LateError() {
  return absl::DeadlineExceededError("the answer took longer than it may");
}

// Answers in the order of `requests`, which are of one op and not null. What is wrong with one of
// them is no fault of the others.
std::vector<absl::StatusOr<TextResult>> Answer(TextService& service,
                                               const std::vector<const TextRequest*>& requests);

// The response to each line, which should be a request's JSON, in their order; to what is no line,
// an error that says why. Neighbours of one op are answered at once. With a `refusal` nothing is
// computed, and every response is this error.
std::vector<nlohmann::ordered_json> Respond(TextService& service,
                                            const std::vector<absl::StatusOr<std::string>>& lines,
                                            const RequestLimits& limits,
                                            const absl::Status& refusal = absl::OkStatus());

// How probable a text of any length is. A text of less than facts().seq_len tokens is scored whole.
// A longer one is cut, between words where they are not longer than 64 bytes, into windows of
// `stride` tokens at most; the context of each is as much of the text before it as fits. So each
// token counts once, and has at least seq_len - stride tokens of context where there are so many.
// Windows are encoded apart: a token that would reach over a cut becomes two. The request's
// `check_wanted` is asked while the text is cut, too.
// Errors: those of Score; InvalidArgument if 64 bytes do not fit.
absl::StatusOr<RollingScore> ScoreRolling(TextService& service, const RollingRequest& request);

}  // namespace anyorder::launcher
