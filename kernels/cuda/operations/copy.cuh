// Moves rows and clears memory: bytes, whatever they mean (kernels/rows.h, kernels/backend.h).
//
// Units are the largest of 16, 4, 2 and 1 bytes that divides all addresses, strides and lengths:
// tensors of the model are moved by 16 bytes, and any others still. A thread reads four units
// before it writes them, so that enough are under way to fill the memory's pipe.

#pragma once

#include "kernels/cuda/platform/division.h"

namespace anyorder::kernels::cuda {

inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyUnits = 4;  // of a thread
inline constexpr int kWordsBytes = 16;

template <typename Unit>
ANYORDER_DEVICE Unit LoadUnit(const Unit* from) {
  if constexpr (sizeof(Unit) == kWordsBytes) {
    return LoadWords(from);
  } else {
    return *from;
  }
}
template <typename Unit>
ANYORDER_DEVICE void StoreUnit(Unit* to, const Unit& unit) {
  if constexpr (sizeof(Unit) == kWordsBytes) {
    StoreWords(to, unit);
  } else {
    *to = unit;
  }
}

// Lengths and strides count units.
template <typename Unit>
struct CopyParams {
  const Unit* source;
  int64_t source_stride;
  Unit* destination;
  int64_t destination_stride;
  int64_t rows;
  int64_t units;  // a row
};
template <typename Unit>
ANYORDER_KERNEL void CopyRowsKernel(CopyParams<Unit> p) {
  const int64_t limit = p.rows * p.units;
  const int64_t first = int64_t{BlockX()} * kCopyThreads * kCopyUnits + Thread();
  Unit units[kCopyUnits];
  int64_t to[kCopyUnits];
  ANYORDER_UNROLL
  for (int i = 0; i < kCopyUnits; ++i) {
    const int64_t index = first + i * kCopyThreads;
    if (index >= limit) continue;
    const Quotient at = Divide(index, p.units, limit);
    to[i] = at.quotient * p.destination_stride + at.remainder;
    units[i] = LoadUnit(p.source + at.quotient * p.source_stride + at.remainder);
  }
  ANYORDER_UNROLL
  for (int i = 0; i < kCopyUnits; ++i) {
    if (first + i * kCopyThreads < limit) StoreUnit(p.destination + to[i], units[i]);
  }
}

// [begin, end) in three parts: bytes up to `words`, which is 16-byte aligned, `num_words` units of
// 16 bytes, and the bytes that are left.
struct FillParams {
  unsigned char* begin;
  unsigned char* words;
  int64_t num_words;
  unsigned char* end;
};
ANYORDER_KERNEL void FillZeroKernel(FillParams p) {
  const int64_t index = int64_t{BlockX()} * BlockThreads() + Thread();
  if (index < p.num_words) StoreWords(p.words + index * kWordsBytes, Words4{});
  if (p.begin + index < p.words) p.begin[index] = 0;
  unsigned char* const rest = p.words + p.num_words * kWordsBytes;
  if (rest + index < p.end) rest[index] = 0;
}

}  // namespace anyorder::kernels::cuda
