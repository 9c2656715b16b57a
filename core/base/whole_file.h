// Whole files: configurations, indexes, ledgers, texts. Large ones are read by range.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/unique_fd.h"

namespace anyorder {

// How many bytes a file of a kind may have: more than any that is one, and few enough that what a
// stranger or a mistake put there (/dev/zero) is refused before memory runs out.
inline constexpr int64_t kMaxSettingsBytes = int64_t{4} << 20;  // configurations, lists of hosts
inline constexpr int64_t kMaxTableBytes = int64_t{64} << 20;    // tokenizers, indexes
inline constexpr int64_t kMaxTextBytes = int64_t{2} << 30;      // texts, results, records of a run

// The bytes of a file that a user named, or of a pipe up to its end. Unlike a stream's iterators it
// reports what cannot be read (a directory, a bad disk) instead of throwing. Errors: those of
// ErrnoStatus, NotFound where nothing is; DataLoss for more than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);

// open(2) of a file that is a run's own. What is there and is no regular file is refused: a pipe's
// other end would be waited for, and a device never ends. Errors: those of ErrnoStatus; DataLoss.
absl::StatusOr<UniqueFd> OpenRegular(const std::string& path, int flags);
// ReadWholeFile of such a file.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes);

// OK if `name` in a directory that others made ("": this one) is a plain file there. A link out of
// it would put what only the user may read into copies for others; those of Hugging Face's cache
// are followed: models--x/snapshots/HASH/name to models--x/blobs/HASH. Errors: NotFound where
// nothing is; FailedPrecondition that says where a link leads.
absl::Status CheckFileInside(const std::string& directory, const std::string& name);
// The bytes of such a file. Errors: those of both.
absl::StatusOr<std::string> ReadFileInside(const std::string& directory, const std::string& name,
                                           int64_t max_bytes);

}  // namespace anyorder
