// Everything element-wise between the two products: segment term, visibility, softmax, dropout, and
// their backward. Scores are in units of log2(e) (the scale is folded into q), so that exp is exp2.

#pragma once

#include "kernels/cpu/attention/attention_tiles.h"

namespace anyorder::kernels::cpu::ANYORDER_ATTENTION_ISA {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// Bits j = 0..63: key slot `begin + j` is kept (kernels/dropout.h), begin a multiple of 64. Eight
// blocks of Philox4x32-7 in the low halves of 64-bit lanes: the high halves collect rubbish that a
// 32 x 32 multiply never reads, which saves every mask and blend.
inline uint64_t KeepBits(const AttentionProblem& p, uint32_t row, uint32_t head, int64_t begin) {
  if (p.dropout_threshold > 0xffffu) return 0;
  const uint32_t first = static_cast<uint32_t>(begin >> 5) * 4;
#if defined(__AVX512F__)
  const auto wide = [](uint32_t a) { return _mm512_set1_epi64(static_cast<int64_t>(a)); };
  __m512i c0 = _mm512_add_epi64(wide(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  __m512i c1 = wide(row);
  __m512i c2 = wide(head);
  __m512i c3 = wide(p.dropout_site);
  uint32_t key0 = p.dropout_key0;
  uint32_t key1 = p.dropout_key1;
#pragma GCC unroll 7
  for (int round = 0; round < 7; ++round) {
    const __m512i product0 = _mm512_mul_epu32(c0, wide(0xD2511F53u));
    const __m512i product1 = _mm512_mul_epu32(c2, wide(0xCD9E8D57u));
    c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), c1, wide(key0), 0x96);
    c1 = product1;
    c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), c3, wide(key1), 0x96);
    c3 = product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  // Word k of block (g, t) holds the draws of keys 32 g + 8 k + 2 t + {0, 1}.
  const __m512i low_words =
      _mm512_setr_epi32(0, 2, 4, 6, 16, 18, 20, 22, 8, 10, 12, 14, 24, 26, 28, 30);
  const __m512i words01 = _mm512_permutex2var_epi32(c0, low_words, c1);
  const __m512i words23 = _mm512_permutex2var_epi32(c2, low_words, c3);
  const __m512i group0 = _mm512_shuffle_i64x2(words01, words23, 0x44);
  const __m512i group1 = _mm512_shuffle_i64x2(words01, words23, 0xee);
  const __m512i threshold = _mm512_set1_epi16(static_cast<int16_t>(p.dropout_threshold));
  return uint64_t{_mm512_cmpge_epu16_mask(group0, threshold)} |
         uint64_t{_mm512_cmpge_epu16_mask(group1, threshold)} << 32;
#else
  constexpr int kBlocks = 8;
  uint64_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (uint32_t block = 0; block < kBlocks; ++block) {
    c0[block] = first + block;
    c1[block] = row;
    c2[block] = head;
    c3[block] = p.dropout_site;
  }
  uint32_t key0 = p.dropout_key0;
  uint32_t key1 = p.dropout_key1;
  for (int round = 0; round < 7; ++round) {
    for (int block = 0; block < kBlocks; ++block) {
      const uint64_t product0 = (c0[block] & 0xffffffffu) * 0xD2511F53u;
      const uint64_t product1 = (c2[block] & 0xffffffffu) * 0xCD9E8D57u;
      c0[block] = (product1 >> 32) ^ c1[block] ^ key0;
      c1[block] = product1;
      c2[block] = (product0 >> 32) ^ c3[block] ^ key1;
      c3[block] = product0;
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  uint64_t bits = 0;
  for (int block = 0; block < kBlocks; ++block) {
    const uint64_t words[4] = {c0[block], c1[block], c2[block], c3[block]};
    const int j = 32 * (block >> 2) + 2 * (block & 3);
    for (int k = 0; k < 4; ++k) {
      const uint64_t low = words[k] & 0xffffu;
      const uint64_t high = (words[k] >> 16) & 0xffffu;
      bits |= static_cast<uint64_t>(low >= p.dropout_threshold) << (j + 8 * k);
      bits |= static_cast<uint64_t>(high >= p.dropout_threshold) << (j + 8 * k + 1);
    }
  }
  return bits;
#endif
}

// What the element-wise passes know of one tile of a row.
struct TileRow {
  const int32_t* seg = nullptr;  // [64], of the keys
  uint64_t visible = 0;
  uint64_t keep = 0;
};

// Adds the segment difference and hides what is invisible; returns the largest score. In place.
template <bool kSegments>
inline Floats MaskScores(float* scores, const TileRow& tile, int32_t row_seg, float difference,
                         Floats largest) {
  const Ints seg = Set(row_seg);
  const Floats other = Set(difference);
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    Floats s = Load(scores + j);
    if constexpr (kSegments) s = Select(Equal(Load(tile.seg + j), seg), s, Add(s, other));
    s = Select(ToMask(tile.visible >> j), s, Set(kNegativeInfinity));
    Store(scores + j, s);
    largest = Larger(largest, s);
  }
  return largest;
}

// scores -> exp2(scores - largest), dropped where keep is 0, as elements; returns sum plus what was
// not yet dropped.
template <typename Element>
inline Floats ExpScores(const float* scores, Floats largest, uint64_t keep, Floats sum,
                        Element* probabilities) {
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    const Floats p = Exp2(Sub(Load(scores + j), largest));
    sum = Add(sum, p);
    StoreAs(probabilities + j, Select(ToMask(keep >> j), p, Floats{}));
  }
  return sum;
}

// One row's constants in backward.
struct RowGradient {
  float lse2 = 0;        // log2-domain normaliser without the "same segment" part
  float delta = 0;       // rowsum(dout * out)
  float difference = 0;  // segment difference, log2 domain
  float keep_scale = 1;
  int32_t seg = 0;
};

// scores, dp -> ds (in scores) and dropped probabilities (in dp). Adds ds of the pairs in different
// segments to *other.
template <bool kSegments>
inline void GradientScores(float* scores, float* dp, const TileRow& tile, const RowGradient& row,
                           Floats* other) {
  const Ints seg = Set(row.seg);
  const Floats lse = Set(row.lse2);
  const Floats delta = Set(row.delta);
  const Floats difference = Set(row.difference);
  const Floats scale = Set(row.keep_scale);
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    Floats s = Load(scores + j);
    Mask same{};
    if constexpr (kSegments) {
      same = Equal(Load(tile.seg + j), seg);
      s = Select(same, s, Add(s, difference));
    }
    const Mask visible = ToMask(tile.visible >> j);
    const Floats p = Select(visible, Exp2(Sub(s, lse)), Floats{});
    const Floats kept_scale = Select(ToMask(tile.keep >> j), scale, Floats{});
    const Floats dp_kept = Select(visible, Mul(Load(dp + j), kept_scale), Floats{});
    const Floats ds = Mul(p, Sub(dp_kept, delta));
    Store(scores + j, ds);
    Store(dp + j, Mul(p, kept_scale));
    if constexpr (kSegments) *other = Add(*other, Select(same, Floats{}, ds));
  }
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ATTENTION_ISA
