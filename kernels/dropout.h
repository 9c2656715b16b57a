// Dropout masks as a pure function of logical coordinates.
//
// A keep decision depends on (seed, step, site, logical row, column) and, inside attention, on
// (seed, step, site, head, logical row, key slot): never on tiles, threads, ranks or devices, so
// that forward and backward, every backend and any number of ranks agree bit for bit. Masks are
// never stored.
//
// Philox4x32-7 gives eight 16-bit draws a call. In attention one call covers the eight key slots
// j = 32*g + 8*k + 2*t + {0, 1} (k = 0..3) of one group g and t: the columns that one lane of a GPU
// mma accumulator owns, so that no draw is wasted there. Element-wise sites use eight neighbouring
// columns.

#pragma once

#include <cstdint>

#include "core/base/philox.h"

namespace anyorder::kernels {

// Keep iff the 16-bit draw >= threshold; the realised rate is threshold / 65536.
struct Dropout {
  uint32_t key0 = 0;  // from DropoutKey: seed and step
  uint32_t key1 = 0;
  uint32_t site = 0;       // which dropout of the network (core/network numbers them)
  uint32_t threshold = 0;  // 0 means no dropout

  constexpr bool enabled() const { return threshold != 0; }
  // 1 / (realised keep probability), multiplied onto what is kept.
  constexpr float scale() const { return 65536.0f / (65536.0f - static_cast<float>(threshold)); }
};

// REQUIRES: 0 <= rate < 1.
inline Dropout MakeDropout(uint64_t seed, uint64_t step, uint32_t site, double rate) {
  const PhiloxBlock key =
      Philox4x32<10>({static_cast<uint32_t>(RandomPurpose::kDropout), static_cast<uint32_t>(step),
                      static_cast<uint32_t>(step >> 32), 0},
                     static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return {key[0], key[1], site, static_cast<uint32_t>(rate * 65536.0 + 0.5)};
}

// The 16-bit draw number `index` (0..7) of a block.
constexpr uint32_t Draw16(const PhiloxBlock& block, int index) {
  return (block[index >> 1] >> (16 * (index & 1))) & 0xffffu;
}

// Attention probability of query row `row` (logical id), key slot j.
constexpr PhiloxBlock AttentionDropoutBlock(const Dropout& d, uint32_t row, uint32_t head,
                                            uint32_t j) {
  return Philox4x32<7>({(j >> 5) * 4 + ((j >> 1) & 3), row, head, d.site}, d.key0, d.key1);
}
constexpr int AttentionDrawIndex(uint32_t j) {
  return static_cast<int>(2 * ((j >> 3) & 3) + (j & 1));
}
constexpr bool KeepAttention(const Dropout& d, uint32_t row, uint32_t head, uint32_t j) {
  return Draw16(AttentionDropoutBlock(d, row, head, j), AttentionDrawIndex(j)) >= d.threshold;
}

// Element (row, column) of a matrix; `row` is the logical id. The head word cannot collide with
// attention's.
constexpr PhiloxBlock ElementDropoutBlock(const Dropout& d, uint32_t row, uint32_t column) {
  return Philox4x32<7>({column >> 3, row, 0xffffffffu, d.site}, d.key0, d.key1);
}
constexpr bool KeepElement(const Dropout& d, uint32_t row, uint32_t column) {
  return Draw16(ElementDropoutBlock(d, row, column), static_cast<int>(column & 7)) >= d.threshold;
}

}  // namespace anyorder::kernels
