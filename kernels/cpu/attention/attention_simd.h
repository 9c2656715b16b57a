// Vectors of 32-bit lanes for the attention kernels: AVX-512 by intrinsics, anything else by GCC's
// vector extensions. What is of one element, and Philox, is in vector_math.h, whose rules hold
// here, too.

#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/vector/vector_math.h"

#define ANYORDER_SIMD inline __attribute__((always_inline))

namespace anyorder::kernels::cpu::ANYORDER_ISA {

inline constexpr float kNegativeInfinity = -__builtin_inff();

ANYORDER_SIMD int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
ANYORDER_SIMD int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }

#if defined(__AVX512F__)

inline constexpr int kLanes = 16;
using Floats = __m512;
using Ints = __m512i;
using Mask = __mmask16;

ANYORDER_SIMD Floats Load(const float* p) { return _mm512_loadu_ps(p); }
ANYORDER_SIMD void Store(float* p, Floats a) { _mm512_storeu_ps(p, a); }
ANYORDER_SIMD Floats Set(float a) { return _mm512_set1_ps(a); }
ANYORDER_SIMD Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
ANYORDER_SIMD Floats Sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
ANYORDER_SIMD Floats Mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
ANYORDER_SIMD Floats Larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
ANYORDER_SIMD Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
ANYORDER_SIMD Floats Select(Mask m, Floats a, Floats b) { return _mm512_mask_blend_ps(m, b, a); }
ANYORDER_SIMD float Sum(Floats a) { return _mm512_reduce_add_ps(a); }
ANYORDER_SIMD float Largest(Floats a) { return _mm512_reduce_max_ps(a); }

ANYORDER_SIMD Ints Load(const int32_t* p) { return _mm512_loadu_si512(p); }
ANYORDER_SIMD Ints Set(int32_t a) { return _mm512_set1_epi32(a); }
ANYORDER_SIMD Ints Sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
ANYORDER_SIMD Mask Equal(Ints a, Ints b) { return _mm512_cmpeq_epi32_mask(a, b); }
ANYORDER_SIMD Mask LessEqual(Ints a, Ints b) { return _mm512_cmple_epi32_mask(a, b); }
ANYORDER_SIMD Mask And(Mask a, Mask b) { return a & b; }
ANYORDER_SIMD Mask Or(Mask a, Mask b) { return a | b; }
ANYORDER_SIMD uint64_t ToBits(Mask m) { return m; }
ANYORDER_SIMD Mask ToMask(uint64_t bits) { return static_cast<Mask>(bits); }

// 2^n * mantissa by one instruction; too small a result becomes zero.
ANYORDER_SIMD Floats RoundToInteger(Floats a) { return _mm512_roundscale_ps(a, 0); }
ANYORDER_SIMD Floats ScaleByPowerOfTwo(Floats a, Floats n) { return _mm512_scalef_ps(a, n); }

ANYORDER_SIMD Floats LoadAs(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
ANYORDER_SIMD Ints Bf16InLowHalf(Floats a) {  // rounds to nearest even; NaN stays NaN
  const __m512i bits = _mm512_castps_si512(a);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16);
}
ANYORDER_SIMD void StoreAs(uint16_t* p, Floats a) {
#ifdef __AVX512BF16__
  const __m256bh rounded = _mm512_cvtneps_pbh(a);
  std::memcpy(p, &rounded, sizeof(rounded));
#else
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(Bf16InLowHalf(a)));
#endif
}

#else  // GCC vector extensions

#ifdef __AVX2__
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
using Mask = Ints;  // all ones or all zeros in each lane

ANYORDER_SIMD Floats Load(const float* p) {
  Floats a;
  std::memcpy(&a, p, sizeof(a));
  return a;
}
ANYORDER_SIMD void Store(float* p, Floats a) { std::memcpy(p, &a, sizeof(a)); }
ANYORDER_SIMD Floats Set(float a) { return a - Floats{}; }
ANYORDER_SIMD Floats Add(Floats a, Floats b) { return a + b; }
ANYORDER_SIMD Floats Sub(Floats a, Floats b) { return a - b; }
ANYORDER_SIMD Floats Mul(Floats a, Floats b) { return a * b; }
ANYORDER_SIMD Floats Larger(Floats a, Floats b) { return a > b ? a : b; }
ANYORDER_SIMD Floats Fma(Floats a, Floats b, Floats c) {
#if defined(__AVX2__) && defined(__FMA__)
  return reinterpret_cast<Floats>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  return a * b + c;
#endif
}
ANYORDER_SIMD Floats Select(Mask m, Floats a, Floats b) { return m ? a : b; }
ANYORDER_SIMD float Sum(Floats a) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += a[i];
  return sum;
}
ANYORDER_SIMD float Largest(Floats a) {
  float largest = a[0];
  for (int i = 1; i < kLanes; ++i) largest = a[i] > largest ? a[i] : largest;
  return largest;
}

ANYORDER_SIMD Ints Load(const int32_t* p) {
  Ints a;
  std::memcpy(&a, p, sizeof(a));
  return a;
}
ANYORDER_SIMD Ints Set(int32_t a) { return a - Ints{}; }
ANYORDER_SIMD Ints Sub(Ints a, Ints b) { return a - b; }
ANYORDER_SIMD Mask Equal(Ints a, Ints b) { return a == b; }
ANYORDER_SIMD Mask LessEqual(Ints a, Ints b) { return a <= b; }
ANYORDER_SIMD Mask And(Mask a, Mask b) { return a & b; }
ANYORDER_SIMD Mask Or(Mask a, Mask b) { return a | b; }
ANYORDER_SIMD Ints LaneBits() {
  Ints bits{};
  for (int i = 0; i < kLanes; ++i) bits[i] = 1 << i;
  return bits;
}
ANYORDER_SIMD uint64_t ToBits(Mask m) {
#ifdef __AVX2__
  return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(m)));
#else
  uint64_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= m[i] != 0 ? uint64_t{1} << i : 0;
  return bits;
#endif
}
ANYORDER_SIMD Mask ToMask(uint64_t bits) {
  return (Set(static_cast<int32_t>(bits)) & LaneBits()) != 0;
}

ANYORDER_SIMD Floats RoundToInteger(Floats a) {  // |a| < 2^22
  const Floats magic = Set(12582912.0f);
  return (a + magic) - magic;
}
ANYORDER_SIMD Floats ScaleByPowerOfTwo(Floats a, Floats n) {  // a near 1; below 2^-126: zero
  const Ints exponent = __builtin_convertvector(n, Ints);
  const Ints bits = reinterpret_cast<Ints>(a) + (exponent << 23);
  return n < Set(-125.0f) ? Floats{} : reinterpret_cast<Floats>(bits);
}

ANYORDER_SIMD Floats LoadAs(const uint16_t* p) {
  Ints bits{};
  for (int i = 0; i < kLanes; ++i)
    bits[i] = static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16);
  return reinterpret_cast<Floats>(bits);
}
ANYORDER_SIMD void StoreAs(uint16_t* p, Floats a) {
  for (int i = 0; i < kLanes; ++i) Store(p, i, a[i]);
}

#endif

ANYORDER_SIMD Floats LoadAs(const float* p) { return Load(p); }
ANYORDER_SIMD void StoreAs(float* p, Floats a) { Store(p, a); }

// 2^a for a <= 128. Rounding to an integer leaves |f| <= 1/2; (2^f - 1) / f is interpolated there
// at the six Chebyshev points, which leaves a relative error of 5e-9, a tenth of fp32's. -inf and
// far below give 0. The larger of a bound and a, in this order, lets NaN through.
ANYORDER_SIMD Floats Exp2(Floats a) {
  const Floats x = Larger(Set(-200.0f), a);
  const Floats n = RoundToInteger(x);
  const Floats f = Sub(x, n);
  Floats p = Fma(Set(1.5453162941960995e-4f), f, Set(1.3390863364651736e-3f));
  p = Fma(p, f, Set(9.618082557286533e-3f));
  p = Fma(p, f, Set(5.5503571142191135e-2f));
  p = Fma(p, f, Set(0.24022650760568082f));
  p = Fma(p, f, Set(0.6931471880262287f));
  p = Fma(p, f, Set(1.0f));
  return ScaleByPowerOfTwo(p, n);
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
