#include "ckpt/chunk_sums.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "core/base/crc32c.h"

namespace anyorder::ckpt {
namespace {

// A part of the first-level cache: the sum reads there what the copy has just read.
constexpr int64_t kCopyBlockBytes = 4 << 10;

#if defined(__x86_64__)
// While a block is copied, the one after the next is fetched, and arrives while the next is summed
// and copied.
constexpr int64_t kFetchAheadBytes = 2 * kCopyBlockBytes;
constexpr int64_t kStoreBytes = 16;

// Stores past the caches, which keep the model for the next step; the disk reads the copy from
// memory anyway. `to` lies at a multiple of 16, `bytes` is one of 64. `next`: what to fetch
// meanwhile, or null.
void StreamBlock(char* to, const char* from, int64_t bytes, const char* next) {
  for (int64_t i = 0; i < bytes; i += 4 * kStoreBytes) {
    if (next != nullptr) _mm_prefetch(next + i, _MM_HINT_T0);
    __m128i line[4];
    for (int j = 0; j < 4; ++j)
      line[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + j * kStoreBytes));
    for (int j = 0; j < 4; ++j)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j * kStoreBytes), line[j]);
  }
}
#endif

}  // namespace

uint32_t CopyWithCrc32c(void* dst, const void* src, int64_t bytes, uint32_t crc) {
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  const auto copy_plainly = [&](int64_t piece) {
    std::memcpy(to, from, static_cast<size_t>(piece));
    crc = Crc32c(from, piece, crc);
    to += piece;
    from += piece;
    bytes -= piece;
  };
#if defined(__x86_64__)
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kStoreBytes);
  if (misaligned != 0) copy_plainly(std::min(bytes, kStoreBytes - misaligned));
  while (bytes >= kCopyBlockBytes) {
    const bool is_more = bytes >= kFetchAheadBytes + kCopyBlockBytes;
    StreamBlock(to, from, kCopyBlockBytes, is_more ? from + kFetchAheadBytes : nullptr);
    crc = Crc32c(from, kCopyBlockBytes, crc);
    to += kCopyBlockBytes;
    from += kCopyBlockBytes;
    bytes -= kCopyBlockBytes;
  }
  _mm_sfence();  // streamed stores are weakly ordered, and the service reads them as soon as it is
                 // told
#endif
  while (bytes > 0) copy_plainly(std::min(bytes, kCopyBlockBytes));
  return crc;
}

void ChunkedCrc32c::Append(void* dst, const void* src, int64_t bytes) {
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  while (bytes > 0) {
    const int64_t piece = std::min(bytes, kCrcChunkBytes - filled_);
    current_ =
        from == nullptr ? Crc32c(to, piece, current_) : CopyWithCrc32c(to, from, piece, current_);
    to += piece;
    if (from != nullptr) from += piece;
    bytes -= piece;
    filled_ += piece;
    if (filled_ == kCrcChunkBytes) {
      crcs_.push_back(current_);
      current_ = 0;
      filled_ = 0;
    }
  }
}

std::vector<uint32_t> ChunkedCrc32c::Finish() {
  if (filled_ > 0) crcs_.push_back(current_);
  current_ = 0;
  filled_ = 0;
  return std::move(crcs_);
}

std::string CrcsToHex(const std::vector<uint32_t>& crcs) {
  std::string hex;
  hex.reserve(crcs.size() * 8);
  for (const uint32_t crc : crcs) absl::StrAppend(&hex, absl::Hex(crc, absl::kZeroPad8));
  return hex;
}

absl::StatusOr<std::vector<uint32_t>> CrcsFromHex(absl::string_view hex) {
  if (hex.size() % 8 != 0)
    return absl::DataLossError("checksum list is not a multiple of 8 digits");
  std::vector<uint32_t> crcs(hex.size() / 8);
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c)))
      return absl::DataLossError("checksum list holds a character that is no hex digit");
    const uint32_t digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    crcs[i / 8] = crcs[i / 8] << 4 | digit;
  }
  return crcs;
}

}  // namespace anyorder::ckpt
