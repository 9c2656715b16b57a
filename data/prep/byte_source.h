// The bytes of an input file: a range of a plain file, or the whole of a compressed one,
// decompressed as it is read. Memory is a few buffers whatever the file's size.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/digest.h"

namespace anyorder::data {

enum class Compression { kNone, kGzip, kZstd };

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `capacity` bytes, 0 at the end. Errors: those of read; DataLoss for damaged or truncated
  // compressed data.
  virtual absl::StatusOr<size_t> Read(char* out, size_t capacity) = 0;
  // Digest of the stored (compressed) bytes consumed so far; of all of them once Read has returned
  // 0.
  virtual Digest128 StoredDigest() const = 0;
};

// Bytes [begin, end) of a plain file. For compressed files begin and end must cover the whole file.
// `end` may lie past the end of the file.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path,
                                                           Compression compression, uint64_t begin,
                                                           uint64_t end);

}  // namespace anyorder::data
