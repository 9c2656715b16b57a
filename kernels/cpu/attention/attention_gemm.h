// Register-blocked outer products: C[m, :] (+)= sum_k A(m, k) * B[k, :].
//
// A is read one 32-bit word at a time with any row and step distance (so rows, columns and
// diagonals of a matrix all serve as A), B is packed with contiguous columns, and every C row has a
// pointer of its own: that is how the relative band is skewed for nothing, by storing each row at
// its own shift.
// A word is one float, or two bf16 neighbours in k.

#pragma once

#include "kernels/cpu/attention/attention_simd.h"

namespace anyorder::kernels::cpu::ANYORDER_ISA {

// Number formats of packed operands.
struct Fp32 {
  using Element = float;
  static constexpr int kPerWord = 1;
  static ANYORDER_SIMD Floats Dot(Floats accumulator, Floats a, Floats b) {
    return Fma(a, b, accumulator);
  }
};
#ifdef __AVX512BF16__
struct Bf16Pairs {
  using Element = uint16_t;
  static constexpr int kPerWord = 2;
  static ANYORDER_SIMD Floats Dot(Floats accumulator, Floats a, Floats b) {
    return _mm512_dpbf16_ps(accumulator, reinterpret_cast<__m512bh>(a),
                            reinterpret_cast<__m512bh>(b));
  }
};
#endif

// 6 x 4 vectors of accumulators fill the 32 registers of AVX-512; 6 x 2 the 16 of AVX2 and SSE.
inline constexpr int kPanelRows = 6;
#if defined(__AVX512F__)
inline constexpr int kPanelVectors = 4;
#else
inline constexpr int kPanelVectors = 2;
#endif
inline constexpr int64_t kColumnUnit = 16;  // column counts are multiples of it

struct Operands {
  const void* a = nullptr;
  int64_t a_row_bytes = 0;
  int64_t a_step_bytes = 0;
  const float* b = nullptr;  // words
  int64_t b_step = 0;        // words between steps
  int64_t steps = 0;
  bool accumulate = false;
};
struct PanelArgs : Operands {
  float* const* c = nullptr;  // a pointer for each row
};

template <class Number, int kRows, int kVectors>
inline __attribute__((noinline)) void PanelKernel(const PanelArgs& args, int64_t column) {
  Floats sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sum[m][v] = args.accumulate ? Load(args.c[m] + column + v * kLanes) : Floats{};
  }
  const char* a = static_cast<const char*>(args.a);
  const float* b = args.b + column;
  const int64_t a_row = args.a_row_bytes;
  const int64_t a_step = args.a_step_bytes;
  const int64_t b_step = args.b_step;
  for (int64_t k = args.steps; k > 0; --k) {
    Floats columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = Load(b + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      float word;
      std::memcpy(&word, a + m * a_row, sizeof(word));
      const Floats row = Set(word);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[m][v] = Number::Dot(sum[m][v], row, columns[v]);
    }
    a += a_step;
    b += b_step;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(args.c[m] + column + v * kLanes, sum[m][v]);
  }
}

template <class Number, int kRows>
inline void PanelColumns(const PanelArgs& args, int64_t columns) {
  constexpr int64_t kWide = kPanelVectors * kLanes;
  int64_t column = 0;
  for (; column + kWide <= columns; column += kWide)
    PanelKernel<Number, kRows, kPanelVectors>(args, column);
#if defined(__AVX512F__)
  switch ((columns - column) / kLanes) {
    case 3: PanelKernel<Number, kRows, 3>(args, column); break;
    case 2: PanelKernel<Number, kRows, 2>(args, column); break;
    case 1: PanelKernel<Number, kRows, 1>(args, column); break;
    default: break;
  }
#endif
}

// One panel of 1 to 6 rows. columns: a multiple of kColumnUnit.
template <class Number>
inline void Panel(int64_t rows, const PanelArgs& args, int64_t columns) {
  switch (rows) {
    case 6: return PanelColumns<Number, 6>(args, columns);
    case 5: return PanelColumns<Number, 5>(args, columns);
    case 4: return PanelColumns<Number, 4>(args, columns);
    case 3: return PanelColumns<Number, 3>(args, columns);
    case 2: return PanelColumns<Number, 2>(args, columns);
    case 1: return PanelColumns<Number, 1>(args, columns);
    default: return;
  }
}

struct GemmOperands : Operands {
  float* c = nullptr;
  int64_t c_row = 0;  // floats
};

// Any number of rows, at constant distances. B should fit the first-level cache: all rows pass over
// it.
template <class Number>
inline void Gemm(int64_t rows, const GemmOperands& x, int64_t columns) {
  for (int64_t row = 0; row < rows; row += kPanelRows) {
    const int64_t count = Min(kPanelRows, rows - row);
    float* c[kPanelRows];
    for (int64_t m = 0; m < count; ++m) c[m] = x.c + (row + m) * x.c_row;
    PanelArgs args{x, c};
    args.a = static_cast<const char*>(x.a) + row * x.a_row_bytes;
    Panel<Number>(count, args, columns);
  }
}

}  // namespace anyorder::kernels::cpu::ANYORDER_ISA
