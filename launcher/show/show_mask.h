// `anyorder show --mask FILE`: does a mask that somebody drew fit the one attention kernel?

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

// The ranks that give the mask, as text: two lines, "lim" of each row and "key" of each key (-
// where nobody sees it). A line of the file is a row: 1 for a key that it sees, 0 or . for one that
// it does not, spaces between them or not; lines without any are passed over, and what follows a #.
// Errors: NotFound and the like; FailedPrecondition for a file that is no mask, and for a mask
// without ranks, whose rows it names.
absl::StatusOr<std::string> RanksOfMaskFile(const std::string& path);

}  // namespace anyorder::launcher
