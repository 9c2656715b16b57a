// XXH3-128 digests that name data: datasets, vocabularies, configurations, training states.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace anyorder {

// XXH3-128 with seed 0. Not cryptographic: it tells accidents apart, not attackers.
struct Digest128 {
  uint64_t lo = 0;
  uint64_t hi = 0;

  // 32 lower-case hexadecimal digits, most significant first (xxhsum -H2 prints the same).
  std::string Hex() const;

  friend bool operator==(const Digest128&, const Digest128&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const Digest128& digest) {
    return H::combine(std::move(state), digest.lo, digest.hi);
  }
};

Digest128 DigestOf(absl::string_view bytes);

// DigestOf the concatenation of everything passed to Update.
class StreamingDigest {
 public:
  StreamingDigest();
  ~StreamingDigest();
  StreamingDigest(StreamingDigest&&) noexcept;
  StreamingDigest& operator=(StreamingDigest&&) noexcept;

  void Update(absl::string_view bytes);
  Digest128 Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// [offset, offset + bytes) of a file.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// What of a file of `bytes` bytes lies outside `holes`, which may come in any order, overlap, and
// reach past the end. In order, none empty.
std::vector<ByteRange> RangesOutside(uint64_t bytes, std::vector<ByteRange> holes);

// DigestOf what of `file` lies outside `holes`.
Digest128 DigestOutside(absl::string_view file, std::vector<ByteRange> holes);

}  // namespace anyorder
