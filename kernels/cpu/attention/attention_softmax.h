// Everything element-wise between the two products: segment term, visibility, softmax, dropout, and
// their backward. Scores are in units of log2(e) (the scale is folded into q), so that exp is exp2.

#pragma once

#include "kernels/cpu/attention/attention_tiles.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// Bits j = 0..63: key slot `begin + j` is kept (kernels/dropout.h), begin a multiple of 64. Word k
// of block t of a group g of 32 keys has the draws of keys 32 g + 8 k + 2 t + {0, 1}.
inline uint64_t KeepBits(const AttentionProblem& p, uint32_t row, uint32_t head, int64_t begin) {
  if (p.dropout_threshold > 0xffffu) return 0;
  constexpr int kBlocks = 8;
  const uint32_t first = static_cast<uint32_t>(begin >> 5) * 4;
  const auto draw = [&](uint32_t block) {
    return Philox7({first + block, row, head, p.dropout_site, p.dropout_key0, p.dropout_key1});
  };
#if defined(__AVX512F__)
  static_assert(kWideLanes == kBlocks);
  const PhiloxWords words = draw(0);
  const __m512i low_halves =
      _mm512_setr_epi32(0, 2, 4, 6, 16, 18, 20, 22, 8, 10, 12, 14, 24, 26, 28, 30);
  const auto join = [&](Wide a, Wide b) {
    return _mm512_permutex2var_epi32(reinterpret_cast<__m512i>(a), low_halves,
                                     reinterpret_cast<__m512i>(b));
  };
  const __m512i words01 = join(words.c[0], words.c[1]);
  const __m512i words23 = join(words.c[2], words.c[3]);
  const __m512i group0 = _mm512_shuffle_i64x2(words01, words23, 0x44);
  const __m512i group1 = _mm512_shuffle_i64x2(words01, words23, 0xee);
  const __m512i threshold = _mm512_set1_epi16(static_cast<int16_t>(p.dropout_threshold));
  return uint64_t{_mm512_cmpge_epu16_mask(group0, threshold)} |
         uint64_t{_mm512_cmpge_epu16_mask(group1, threshold)} << 32;
#else
  uint64_t words[4][kBlocks];
  for (int block = 0; block < kBlocks; block += kWideLanes) {
    const PhiloxWords some = draw(static_cast<uint32_t>(block));
    for (int k = 0; k < 4; ++k) std::memcpy(&words[k][block], &some.c[k], sizeof(Wide));
  }
  uint64_t bits = 0;
  for (int block = 0; block < kBlocks; ++block) {
    const int j = 32 * (block >> 2) + 2 * (block & 3);
    for (int k = 0; k < 4; ++k) {
      const uint64_t low = words[k][block] & 0xffffu;
      const uint64_t high = (words[k][block] >> 16) & 0xffffu;
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

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
