// Whole small files: configurations, indexes, ledgers. Large ones are read by range.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace anyorder {

// The bytes of a file, or of a pipe up to its end. Unlike a stream's iterators it reports what
// cannot be read (a directory, a bad disk) instead of throwing. Errors: those of ErrnoStatus,
// NotFound where nothing is.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace anyorder
