// Matrix products and column sums.
//
// Numerics: sums in fp32 (double in the reference), rounded once to c's dtype after bias and beta were
// applied. Edge cases: any of M, N may be 0 (nothing is written); K = 0 gives c = bias + beta * c.

#pragma once

#include "core/base/tensor.h"

namespace anyorder::kernels {

// c = op(a) op(b) + bias + beta * c, with op(a) [M, K], op(b) [K, N].
struct GemmArgs {
  ConstTensorView a;  // [M, K], or [K, M] with transpose_a   T
  ConstTensorView b;  // [K, N], or [N, K] with transpose_b   T
  bool transpose_a = false;
  bool transpose_b = false;
  ConstTensorView bias;  // [N] T or null, added to every row
  float beta = 0.0f;     // 0: c is overwritten and may hold anything before; 1: c is added to
  TensorView c;          // [M, N]  T or G
};

// y[c] (+)= sum over rows of x[r, c]: bias gradients.
struct ColumnSumArgs {
  ConstTensorView x;  // [rows, columns]  T
  float beta = 0.0f;  // 0 or 1
  TensorView y;       // [columns]  G
};

}  // namespace anyorder::kernels
