// Moves rows and clears memory: bytes, whatever they mean (kernels/rows.h, kernels/backend.h).
//
// A thread moves one unit, the largest of 16, 4, 2 and 1 bytes that divides all addresses, strides and lengths: tensors of the model
// are moved by 16 bytes, and any others still.

#pragma once

#include "kernels/cuda/simt.h"

namespace anyorder::kernels::cuda {

inline constexpr int kCopyThreads = 256;
inline constexpr int kWordsBytes = 16;

template <typename Unit>
ANYORDER_DEVICE void MoveUnit(const Unit* from, Unit* to) {
  if constexpr (sizeof(Unit) == kWordsBytes) {
    StoreWords(to, LoadWords(from));
  } else {
    *to = *from;
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
  const int64_t index = int64_t{BlockX()} * BlockThreads() + Thread();
  if (index >= p.rows * p.units) return;
  const int64_t row = index / p.units;
  const int64_t unit = index - row * p.units;
  MoveUnit(p.source + row * p.source_stride + unit,
           p.destination + row * p.destination_stride + unit);
}

// [begin, end) in three parts: bytes up to `words`, which is 16-byte aligned, `num_words` units of 16 bytes, and the bytes that are left.
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
