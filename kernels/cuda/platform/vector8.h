// Eight neighbouring elements of a row: what one thread of a row-wise kernel holds at a time, and
// what one Philox call of element-wise dropout covers (kernels/dropout.h).

#pragma once

#include <type_traits>

#include "core/base/dtype.h"
#include "kernels/cuda/platform/simt.h"
#include "kernels/dropout.h"

namespace anyorder::kernels::cuda {

inline constexpr int kGroup = 8;

ANYORDER_HOST_DEVICE float ToFloat(float value) { return value; }
ANYORDER_HOST_DEVICE float ToFloat(BFloat16 value) { return static_cast<float>(value); }

struct Vector8 {
  float v[kGroup];
};

ANYORDER_DEVICE Vector8 LoadVector(const float* from) {
  const Words4 a = LoadWords(from);
  const Words4 b = LoadWords(from + 4);
  Vector8 x;
  ANYORDER_UNROLL
  for (int i = 0; i < 4; ++i) {
    x.v[i] = AsFloat(a.word[i]);
    x.v[4 + i] = AsFloat(b.word[i]);
  }
  return x;
}
ANYORDER_DEVICE Vector8 LoadVector(const BFloat16* from) {
  const Words4 words = LoadWords(from);
  Vector8 x;
  ANYORDER_UNROLL
  for (int i = 0; i < 4; ++i) {
    x.v[2 * i] = LowBf16(words.word[i]);
    x.v[2 * i + 1] = HighBf16(words.word[i]);
  }
  return x;
}
ANYORDER_DEVICE void StoreVector(float* to, const Vector8& x) {
  Words4 a;
  Words4 b;
  ANYORDER_UNROLL
  for (int i = 0; i < 4; ++i) {
    a.word[i] = AsBits(x.v[i]);
    b.word[i] = AsBits(x.v[4 + i]);
  }
  StoreWords(to, a);
  StoreWords(to + 4, b);
}
ANYORDER_DEVICE void StoreVector(BFloat16* to, const Vector8& x) {
  Words4 words;
  ANYORDER_UNROLL
  for (int i = 0; i < 4; ++i) words.word[i] = PackBf16(x.v[2 * i], x.v[2 * i + 1]);
  StoreWords(to, words);
}
// Rounded as StoreVector does it, NaN too: the instruction makes one NaN of all, where
// BFloat16(float) keeps the upper bits.
template <typename T>
ANYORDER_DEVICE T FromFloat(float value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    BFloat16 rounded;
    rounded.bits = static_cast<uint16_t>(PackBf16(value, 0.0f));
    return rounded;
  } else {
    return value;
  }
}

// With kAligned rows begin at 16-byte addresses and have whole groups; else `count` (1 to 8)
// elements are there, the others 0.
template <bool kAligned, typename T>
ANYORDER_DEVICE Vector8 LoadGroup(const T* from, int count) {
  if constexpr (kAligned) {
    return LoadVector(from);
  } else {
    Vector8 x;
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) x.v[i] = i < count ? ToFloat(from[i]) : 0.0f;
    return x;
  }
}
template <typename T>
ANYORDER_DEVICE Vector8 LoadAny(const T* from, int count, bool is_aligned) {
  return is_aligned ? LoadGroup<true>(from, count) : LoadGroup<false>(from, count);
}
template <bool kAligned, typename T>
ANYORDER_DEVICE void StoreGroup(T* to, const Vector8& x, int count) {
  if constexpr (kAligned) {
    StoreVector(to, x);
  } else {
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) to[i] = FromFloat<T>(x.v[i]);
    }
  }
}
ANYORDER_DEVICE void AddTo(const Vector8& a, Vector8& sums) {
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) sums.v[i] += a.v[i];
}
ANYORDER_DEVICE void Multiply(const Vector8& by, Vector8& x) {
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) x.v[i] *= by.v[i];
}
// As T stores it: what a later pass reads.
template <typename T>
ANYORDER_DEVICE Vector8 Rounded(const Vector8& x) {
  Vector8 y;
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) y.v[i] = ToFloat(FromFloat<T>(x.v[i]));
  return y;
}

// Multiplies what is kept by dropout.scale() and the rest by 0; the group begins at `column` of
// `row`, a multiple of 8. `row_ids`: read with dropout only.
ANYORDER_DEVICE void ApplyDropout(const Dropout& dropout, const int32_t* row_ids, int64_t row,
                                  int column, Vector8& x) {
  if (!dropout.enabled()) return;
  const PhiloxBlock block = ElementDropoutBlock(dropout, static_cast<uint32_t>(row_ids[row]),
                                                static_cast<uint32_t>(column));
  const float scale = dropout.scale();
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) x.v[i] *= Draw16(block, i) >= dropout.threshold ? scale : 0.0f;
}

}  // namespace anyorder::kernels::cuda
