#include "core/base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace anyorder {
namespace {

Digest128 FromXxh(XXH128_hash_t hash) { return {hash.low64, hash.high64}; }

}  // namespace

std::string Digest128::Hex() const {
  return absl::StrCat(absl::Hex(hi, absl::kZeroPad16), absl::Hex(lo, absl::kZeroPad16));
}

Digest128 DigestOf(absl::string_view bytes) {
  return FromXxh(XXH3_128bits(bytes.data(), bytes.size()));
}

struct StreamingDigest::State {
  XXH3_state_t xxh;
};

StreamingDigest::StreamingDigest() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_128bits_reset(&state_->xxh);
}
StreamingDigest::~StreamingDigest() = default;
StreamingDigest::StreamingDigest(StreamingDigest&&) noexcept = default;
StreamingDigest& StreamingDigest::operator=(StreamingDigest&&) noexcept = default;

void StreamingDigest::Update(absl::string_view bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest128 StreamingDigest::Value() const { return FromXxh(XXH3_128bits_digest(&state_->xxh)); }

std::vector<ByteRange> RangesOutside(uint64_t bytes, std::vector<ByteRange> holes) {
  std::sort(holes.begin(), holes.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  std::vector<ByteRange> ranges;
  uint64_t at = 0;
  for (const ByteRange& hole : holes) {
    const uint64_t begin = std::min<uint64_t>(hole.offset, bytes);
    if (begin > at) ranges.push_back({.offset = at, .bytes = begin - at});
    at = std::max(at, begin + std::min<uint64_t>(hole.bytes, bytes - begin));
  }
  if (at < bytes) ranges.push_back({.offset = at, .bytes = bytes - at});
  return ranges;
}

Digest128 DigestOutside(absl::string_view file, std::vector<ByteRange> holes) {
  StreamingDigest digest;
  for (const ByteRange& range : RangesOutside(file.size(), std::move(holes)))
    digest.Update(file.substr(range.offset, range.bytes));
  return digest.Value();
}

}  // namespace anyorder
