// The CRC32C of each chunk of a file, taken inside the staging copy.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::ckpt {

// Files are checksummed in chunks of this size, counted from byte 0. A reader of one element reads
// one chunk.
inline constexpr int64_t kCrcChunkBytes = int64_t{1} << 20;

// Copies while it sums, in pieces that stay in the cache, so that memory is read once. The sum is
// that of `src`: a copy that went wrong does not fit it. `dst` bypasses the caches where the
// processor can, which makes this faster than memcpy.
uint32_t CopyWithCrc32c(void* dst, const void* src, int64_t bytes, uint32_t crc = 0);

// Sums a byte stream chunk by chunk.
class ChunkedCrc32c {
 public:
  // Appends `bytes` of `src` to the stream and to `dst`; null `src` stands for bytes already in
  // `dst`.
  void Append(void* dst, const void* src, int64_t bytes);
  // One value per chunk, the last one possibly of a shorter chunk.
  std::vector<uint32_t> Finish();

 private:
  std::vector<uint32_t> crcs_;
  uint32_t current_ = 0;
  int64_t filled_ = 0;
};

inline int64_t NumCrcChunks(int64_t bytes) { return (bytes + kCrcChunkBytes - 1) / kCrcChunkBytes; }

// Eight lower-case hex digits per value.
std::string CrcsToHex(const std::vector<uint32_t>& crcs);
// Errors: DataLoss for anything else.
absl::StatusOr<std::vector<uint32_t>> CrcsFromHex(absl::string_view hex);

}  // namespace anyorder::ckpt
