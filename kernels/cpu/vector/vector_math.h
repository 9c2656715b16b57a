// Arithmetic of the vectorised kernels: bfloat16, exp, erfc and Philox as loops-over-lanes code.
//
// Included only by sources that are compiled once per instruction set (kernels/cpu's
// CMakeLists.txt, and its attention's, define ANYORDER_ISA for each). Everything is internal to
// that namespace and always inlined, and nothing here may call an inline function of another
// header: the linker could keep the copy with the widest instructions and run it on a machine that
// lacks them. Each function works on one element; the compiler makes vectors.
//
// Numerics: relative error of Exp below 2^-22 in (-87.3, 88.3), of Erfc below 2^-21 + 2^-23 * x^2.

#pragma once

#ifndef ANYORDER_ISA
#error "compile through a variant of kernels/cpu's or its attention's CMakeLists.txt"
#endif

#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define ANYORDER_INLINE static inline __attribute__((always_inline))
#define ANYORDER_STRING_INNER(x) #x
#define ANYORDER_STRING(x) ANYORDER_STRING_INNER(x)

namespace anyorder::kernels::cpu::ANYORDER_ISA {

using Bf16 = uint16_t;

ANYORDER_INLINE uint32_t Bits(float x) { return __builtin_bit_cast(uint32_t, x); }
ANYORDER_INLINE float FromBits(uint32_t x) { return __builtin_bit_cast(float, x); }

ANYORDER_INLINE float Load(const float* x, int64_t i) { return x[i]; }
ANYORDER_INLINE float Load(const Bf16* x, int64_t i) { return FromBits(uint32_t{x[i]} << 16); }
ANYORDER_INLINE void Store(float* y, int64_t i, float value) { y[i] = value; }
// Nearest even, as core/base/dtype.h rounds: the vcvtneps2bf16 instruction would flush denormals.
ANYORDER_INLINE void Store(Bf16* y, int64_t i, float value) {
  const uint32_t u = Bits(value);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  y[i] = static_cast<Bf16>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
}

// a * b + c, fused where the instruction set has it.
ANYORDER_INLINE float MulAdd(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

ANYORDER_INLINE float Max(float a, float b) { return a > b ? a : b; }

// exp(x); 0 below -87.3, infinity above 88.3, NaN for NaN.
ANYORDER_INLINE float Exp(float x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.3f;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the significand.
  constexpr float kRound = 12582912.0f;
  const float clamped = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = MulAdd(clamped, 1.44269504f, kRound);
  const float n = shifted - kRound;
  // ln 2 in two parts; the first has few bits, so that n * kLn2High is exact.
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  const float r = MulAdd(n, -kLn2Low, MulAdd(n, -kLn2High, clamped));
  // Interpolates exp at the Chebyshev nodes of [-ln 2 / 2, ln 2 / 2]; relative error 3e-9.
  float p = 1.3941108433972674e-3f;
  p = MulAdd(p, r, 8.375126398153335e-3f);
  p = MulAdd(p, r, 4.166635289677516e-2f);
  p = MulAdd(p, r, 1.6666415514653277e-1f);
  p = MulAdd(p, r, 0.5000000047117757f);
  p = MulAdd(p, r, 1.000000037716214f);
  p = MulAdd(p, r, 1.0f);
  const float power = FromBits((Bits(shifted) - Bits(kRound) + 127u) << 23);
  return x < kLowest ? 0.0f : (x > kHighest ? __builtin_inff() : p * power);
}

// 1 / (1 + exp(-x)), with a small relative error on both sides.
ANYORDER_INLINE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// 1 - erf(x), relatively exact in the far tail too: t exp(-x^2) P(t) with t = 1 / (1 + |x| / 2) and
// P interpolating at Chebyshev nodes (relative error 2e-8).
ANYORDER_INLINE float Erfc(float x) {
  const float z = x < 0.0f ? -x : x;
  const float t = 1.0f / MulAdd(0.5f, z, 1.0f);
  float p = 0.045383583857860475f;
  p = MulAdd(p, t, -0.24576319902022556f);
  p = MulAdd(p, t, 0.5173467209506198f);
  p = MulAdd(p, t, -0.4830878394343792f);
  p = MulAdd(p, t, 0.15240248119843638f);
  p = MulAdd(p, t, -0.06823509289503489f);
  p = MulAdd(p, t, 0.09592051215461626f);
  p = MulAdd(p, t, 0.17492957797342673f);
  p = MulAdd(p, t, 0.2469157065624366f);
  p = MulAdd(p, t, 0.28209275540661755f);
  p = MulAdd(p, t, 0.2820948013943965f);
  const float tail = t * p * Exp(-z * z);
  return x < 0.0f ? 2.0f - tail : tail;
}

// Lanes of 64 bits, for products of 32-bit numbers.
#if defined(__AVX512F__)
constexpr int kWideLanes = 8;
#elif defined(__AVX2__)
constexpr int kWideLanes = 4;
#else
constexpr int kWideLanes = 2;
#endif
typedef uint64_t Wide __attribute__((vector_size(8 * kWideLanes)));  // NOLINT(modernize-use-using)

// The products of the lanes' low halves; the high halves may hold anything. (From plain
// multiplications of uint64_t the compiler makes full 64-bit products, several times slower.)
ANYORDER_INLINE Wide MulLowHalves(Wide a, Wide b) {
#if defined(__AVX512F__)
  // The form with a mask: GCC 12 takes the plain one's own operands for uninitialised.
  return reinterpret_cast<Wide>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<Wide>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

ANYORDER_INLINE Wide Xor(Wide a, Wide b, Wide c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Wide>(_mm512_ternarylogic_epi64(reinterpret_cast<__m512i>(a),
                                                          reinterpret_cast<__m512i>(b),
                                                          reinterpret_cast<__m512i>(c), 0x96));
#else
  return a ^ b ^ c;
#endif
}

// Philox4x32-7 (core/base/philox.h) on the counters {first + lane, c1, c2, c3}, one a lane.
struct PhiloxInput {
  uint32_t first;
  uint32_t c1;
  uint32_t c2;
  uint32_t c3;
  uint32_t key0;
  uint32_t key1;
};
// The words 0 to 3 of each lane's block, in the low halves; the high ones may hold anything.
struct PhiloxWords {
  Wide c[4];
};
ANYORDER_INLINE PhiloxWords Philox7(const PhiloxInput& in) {
  const Wide zero = {};
  Wide c0 = {};
  for (int lane = 0; lane < kWideLanes; ++lane) c0[lane] = static_cast<uint64_t>(lane);
  c0 += in.first;
  Wide c1 = zero + in.c1;
  Wide c2 = zero + in.c2;
  Wide c3 = zero + in.c3;
  uint32_t key0 = in.key0;
  uint32_t key1 = in.key1;
#pragma GCC unroll 7
  for (int round = 0; round < 7; ++round) {
    // High halves collect rubbish, which no product sees.
    const Wide product0 = MulLowHalves(c0, zero + 0xD2511F53u);
    const Wide product1 = MulLowHalves(c2, zero + 0xCD9E8D57u);
    c0 = Xor(product1 >> 32, c1, zero + key0);
    c2 = Xor(product0 >> 32, c3, zero + key1);
    c1 = product1;
    c3 = product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
