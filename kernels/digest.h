// A digest of a range of bytes that every backend computes to the same bits, in parallel and in any
// order: the words' scrambled values are added modulo 2^64, which no order changes.
//
//   word[i]  bytes [8 i, 8 i + 8), little-endian, the last one filled up with zeros; i from 0
//   a[i]     = Scramble(word[i] + (i + 1) kStep)
//   digest   = { Scramble(bytes) + sum_i a[i],  sum_i ScrambleAgain(a[i]) }
//
// Both functions are one-to-one, so a change within one word always shows; any other passes with
// the odds of 128 random bits, 2^-128. It tells accidents apart, not attackers. It is in no file:
// ranks compare it in a step (core/train/health/replica_check.h).

#pragma once

#include <cstdint>

namespace anyorder::kernels {

struct DigestValue {
  uint64_t lo = 0;
  uint64_t hi = 0;

  friend bool operator==(const DigestValue&, const DigestValue&) = default;
};

// The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
constexpr uint64_t Scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr uint64_t ScrambleAgain(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

// `index`: of the word in the range.
constexpr void AddWord(uint64_t word, int64_t index, DigestValue& sums) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  const uint64_t a = Scramble(word + (static_cast<uint64_t>(index) + 1) * kStep);
  sums.lo += a;
  sums.hi += ScrambleAgain(a);
}
// The digest of all words' sums.
constexpr DigestValue FinishDigest(const DigestValue& sums, int64_t bytes) {
  return {sums.lo + Scramble(static_cast<uint64_t>(bytes)), sums.hi};
}

}  // namespace anyorder::kernels
