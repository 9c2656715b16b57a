// The text of an input file in UTF-8: a range of a plain file, or the whole of one that is
// compressed or in UTF-16, which are decoded as they are read. Memory is a few buffers whatever the
// file's size.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "core/base/digest.h"

namespace anyorder::data {

enum class Compression { kNone, kGzip, kZstd };
// By the ending of a file's name, which is taken off: .gz, .zst, .zstd.
Compression StripCompression(std::string_view& name);

// The largest window of zstd that is read, in bytes; that of `zstd --long=31`.
inline constexpr uint64_t kMostWindowBytes = uint64_t{1} << 31;

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `capacity` bytes, 0 at the end. Errors: those of read; DataLoss for damaged or truncated
  // compressed data, with the place in the file and in the text, and for UTF-32; FailedPrecondition
  // for zstd data that needs a larger window, or a dictionary.
  virtual absl::StatusOr<size_t> Read(char* out, size_t capacity) = 0;
  // Digest of the stored (compressed) bytes consumed so far; of all of them once Read has returned
  // 0.
  virtual Digest128 StoredDigest() const = 0;
  // Once Read was called: whether it gives the bytes as they are stored, so that the file may be
  // read in ranges; and what encoding the text is in ("UTF-8"), for messages.
  virtual bool is_stored_text() const { return false; }
  virtual const char* encoding() const { return "UTF-8"; }
};

// Bytes [begin, end) of a plain file. For files that are compressed or in UTF-16 begin and end must
// cover the whole file. `end` may lie past the end of the file.
//
// UTF-16 is told by its byte-order mark, or by two characters of ASCII at the start. What is no
// valid UTF-16 is handed out as a byte that is no valid UTF-8 (0xFF). A source of zstd data takes
// as much memory as their window, up to `max_window` bytes.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path,
                                                           Compression compression, uint64_t begin,
                                                           uint64_t end,
                                                           uint64_t max_window = kMostWindowBytes);

}  // namespace anyorder::data
