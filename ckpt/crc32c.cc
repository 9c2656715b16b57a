#include "ckpt/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace anyorder::ckpt {
namespace {

// Half of a small L2 cache: the sum reads what the copy has just touched.
constexpr int64_t kCopyBlockBytes = 128 << 10;

}  // namespace

uint32_t Crc32c(const void* data, int64_t bytes, uint32_t crc) {
  // ISA-L takes an int length, a pointer to non-const, and leaves the inversions to the caller.
  constexpr int64_t kMaxCall = 1 << 30;
  auto* from = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;
  while (bytes > 0) {
    const int64_t piece = std::min(bytes, kMaxCall);
    state = crc32_iscsi(from, static_cast<int>(piece), state);
    from += piece;
    bytes -= piece;
  }
  return ~state;
}

uint32_t CopyWithCrc32c(void* dst, const void* src, int64_t bytes, uint32_t crc) {
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  while (bytes > 0) {
    const int64_t piece = std::min(bytes, kCopyBlockBytes);
    std::memcpy(to, from, static_cast<size_t>(piece));
    // The copy is summed, not the source: what counts is what will be written.
    crc = Crc32c(to, piece, crc);
    to += piece;
    from += piece;
    bytes -= piece;
  }
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
  for (const uint32_t crc : crcs)
    absl::StrAppend(&hex, absl::Hex(crc, absl::kZeroPad8));
  return hex;
}

absl::StatusOr<std::vector<uint32_t>> CrcsFromHex(absl::string_view hex) {
  if (hex.size() % 8 != 0)
    return absl::DataLossError("checksum list is not a multiple of 8 digits");
  std::vector<uint32_t> crcs(hex.size() / 8);
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
      return absl::DataLossError("checksum list holds a character that is no hex digit");
    }
    const uint32_t digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    crcs[i / 8] = crcs[i / 8] << 4 | digit;
  }
  return crcs;
}

}  // namespace anyorder::ckpt
