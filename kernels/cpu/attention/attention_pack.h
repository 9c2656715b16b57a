// Packing of operands into the layouts of attention_gemm.h. T: float, or uint16_t for bf16 bits.
//
//   row form        [rows][padded_dim] elements: operand A
//   step form       [rows / kPerWord][padded_dim] words: operand B with the rows as k
//   transposed form [padded_dim / kPerWord][columns] words: operand B with the head dimension as k
// padded_dim is the head size rounded up to 16; padding is zero and contributes nothing.

#pragma once

#include "kernels/cpu/attention/attention_gemm.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

// dst[0..padded) = src[0..dim), then zeros.
template <typename T>
inline void ToFloatRow(const T* src, int64_t dim, int64_t padded, float* dst) {
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) Store(dst + d, LoadAs(src + d));
  for (; d < dim; ++d) dst[d] = Load(src, d);
  for (; d < padded; ++d) dst[d] = 0.0f;
}

// dst[0..dim) = src[0..dim), src padded to a multiple of 16.
template <typename T>
inline void FromFloatRow(const float* src, int64_t dim, T* dst) {
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) StoreAs(dst + d, Load(src + d));
  if (d == dim) return;
  T last[kLanes];
  StoreAs(last, Load(src + d));
  std::memcpy(dst + d, last, static_cast<size_t>(dim - d) * sizeof(T));
}

// Rounds a float row of a multiple of 16 columns to elements.
template <typename Element>
inline void RoundRow(const float* src, int64_t columns, Element* dst) {
  for (int64_t c = 0; c < columns; c += kLanes) StoreAs(dst + c, Load(src + c));
}

#ifdef __AVX512BF16__
// Sixteen columns of two float rows as bf16: first in the low half, second in the high half.
ANYORDER_SIMD __m512i RoundTwo(const float* first, const float* second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(Load(second), Load(first)));
}
// The two halves of 16-bit elements taken in turn: words of (first, second).
ANYORDER_SIMD __m512i InTurn(__m512i halves) {
  const __m512i words = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i index =
      _mm512_or_si512(words, _mm512_slli_epi32(_mm512_add_epi32(words, _mm512_set1_epi32(16)), 16));
  return _mm512_permutexvar_epi16(index, halves);
}
#endif

// Step form of two float rows (the second unused when a word holds one row).
template <class Number>
inline void InterleaveRows(const float* first, const float* second, int64_t columns, float* words) {
  if constexpr (Number::kPerWord == 1) {
    (void)second;
    for (int64_t c = 0; c < columns; c += kLanes) Store(words + c, Load(first + c));
  } else {
#ifdef __AVX512BF16__
    for (int64_t c = 0; c < columns; c += kLanes)
      Store(words + c, _mm512_castsi512_ps(InTurn(RoundTwo(first + c, second + c))));
#endif
  }
}

// Both forms of two float rows at once: rounded rows and their words.
template <class Number>
inline void RoundAndInterleave(const float* const src[2], int64_t columns,
                               typename Number::Element* const rows[2], float* words) {
#ifdef __AVX512BF16__
  for (int64_t c = 0; c < columns; c += kLanes) {
    const __m512i halves = RoundTwo(src[0] + c, src[1] + c);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows[0] + c), _mm512_castsi512_si256(halves));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows[1] + c),
                        _mm512_extracti64x4_epi64(halves, 1));
    Store(words + c, _mm512_castsi512_ps(InTurn(halves)));
  }
#else
  (void)src, (void)columns, (void)rows, (void)words;
#endif
}

// Step form of two rows that are elements already.
template <class Number>
inline void InterleaveElements(const typename Number::Element* first,
                               const typename Number::Element* second, int64_t columns,
                               float* words) {
#ifdef __AVX512BF16__
  for (int64_t c = 0; c < columns; c += kLanes) {
    const __m512i halves = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + c))),
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + c)), 1);
    Store(words + c, _mm512_castsi512_ps(InTurn(halves)));
  }
#else
  (void)first, (void)second, (void)columns, (void)words;
#endif
}

// dst[c * dst_stride + r] = src[r * src_stride + c] for a block of 16 x 16 words.
inline void TransposeBlock(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
#if defined(__AVX512F__)
  __m512 r[16];
  __m512 t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = Load(src + i * src_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  // Now r[4g + m] holds column m of rows 4g..4g+3 in each 128-bit quarter.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const auto low = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    const auto high = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    r[i] = low(i, i + 2);
    r[i + 1] = high(i, i + 2);
    r[i + 2] = low(i + 1, i + 3);
    r[i + 3] = high(i + 1, i + 3);
  }
#pragma GCC unroll 4
  for (int m = 0; m < 4; ++m) {
    const __m512 a = _mm512_shuffle_f32x4(r[m], r[m + 4], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(r[m], r[m + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(r[m + 8], r[m + 12], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(r[m + 8], r[m + 12], 0xdd);
    Store(dst + m * dst_stride, _mm512_shuffle_f32x4(a, c, 0x88));
    Store(dst + (m + 4) * dst_stride, _mm512_shuffle_f32x4(b, d, 0x88));
    Store(dst + (m + 8) * dst_stride, _mm512_shuffle_f32x4(a, c, 0xdd));
    Store(dst + (m + 12) * dst_stride, _mm512_shuffle_f32x4(b, d, 0xdd));
  }
#else
  for (int64_t c = 0; c < 16; ++c) {
    for (int64_t r = 0; r < 16; ++r) dst[c * dst_stride + r] = src[r * src_stride + c];
  }
#endif
}

// Where rows of one head lie in a [rows, H * D] tensor. stride may be negative (the reversed
// table).
template <typename T>
struct HeadRows {
  const T* data = nullptr;
  int64_t stride = 0;  // elements
  int64_t count = 0;
  int64_t dim = 0;
  const T* row(int64_t i) const { return data + i * stride; }
};

// Sixteen rows from `begin` in row form as words, rows past the end zero.
template <class Number, typename T>
inline void PackSixteen(const HeadRows<T>& rows, int64_t begin, int64_t padded, float* words) {
  const int64_t width = padded / Number::kPerWord;
  for (int64_t i = 0; i < 16; ++i) {
    float* dst = words + i * width;
    if (begin + i >= rows.count) {
      std::memset(dst, 0, static_cast<size_t>(width) * 4);
    } else if constexpr (Number::kPerWord == 1) {
      ToFloatRow(rows.row(begin + i), rows.dim, padded, dst);
    } else {
      static_assert(sizeof(T) == 2, "bf16 products take bf16 activations");
      std::memset(dst, 0, static_cast<size_t>(width) * 4);
      std::memcpy(dst, rows.row(begin + i), static_cast<size_t>(rows.dim) * 2);
    }
  }
}

// Transposed form. `tile` columns lie together: word (d, column) at
// [column / tile][d][column % tile]; columns (a multiple of 16, and of tile) beyond the rows are
// zero. buffer: 16 * padded floats.
template <class Number, typename T>
inline void PackTransposed(const HeadRows<T>& rows, int64_t padded, int64_t columns, int64_t tile,
                           float* buffer, float* dst) {
  const int64_t depth = padded / Number::kPerWord;
  for (int64_t begin = 0; begin < columns; begin += 16) {
    PackSixteen<Number>(rows, begin, padded, buffer);
    float* block = dst + begin / tile * tile * depth + begin % tile;
    int64_t d = 0;
    for (; d + 16 <= depth; d += 16) TransposeBlock(buffer + d, depth, block + d * tile, tile);
    for (; d < depth; ++d) {  // 8 words are left where bf16 pairs halve an odd number of 16s
      for (int64_t i = 0; i < 16; ++i) block[d * tile + i] = buffer[i * depth + d];
    }
  }
}

// Step form of `count` rows (a multiple of 2; rows past the end zero). buffer: 2 * padded floats.
template <class Number, typename T>
inline void PackSteps(const HeadRows<T>& rows, int64_t padded, int64_t count, float* buffer,
                      float* dst) {
  for (int64_t i = 0; i < count; i += Number::kPerWord) {
    for (int64_t part = 0; part < Number::kPerWord; ++part) {
      float* row = Number::kPerWord == 1 ? dst : buffer + part * padded;
      if (i + part < rows.count)
        ToFloatRow(rows.row(i + part), rows.dim, padded, row);
      else
        std::memset(row, 0, static_cast<size_t>(padded) * 4);
    }
    if constexpr (Number::kPerWord == 2)
      InterleaveRows<Number>(buffer, buffer + padded, padded, dst);
    dst += padded;
  }
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
