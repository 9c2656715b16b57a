// How probable a text of any length is.

#pragma once

#include <functional>

#include "absl/status/statusor.h"

#include "launcher/texts/request_json.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// A text of less than facts().seq_len tokens is scored whole. A longer one is cut, between words
// where they are not longer than 64 bytes, into windows of `stride` tokens at most; the context of
// each is as much of the text before it as fits. So each token counts once, and has at least
// seq_len - stride tokens of context where there are so many. Windows are encoded apart: a token
// that would reach over a cut becomes two.
// `check_wanted` is asked before each window, and while the text is cut. Errors: its; those of
// Score; InvalidArgument if 64 bytes do not fit.
absl::StatusOr<RollingScore> ScoreRolling(TextService& service, const RollingRequest& request,
                                          const std::function<absl::Status()>& check_wanted);

}  // namespace anyorder::launcher
