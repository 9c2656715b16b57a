// Matrix products and column sums.
//
// Numerics: sums in fp32 (double in the reference), rounded once to c's dtype after bias and beta
// were applied. A library may round twice where c is bf16 (Backend::RoundsProductFirst): also what
// it has before it adds the last of bias and old c. Edge cases: any of M, N may be 0 (nothing of c
// is written); K = 0 gives c = bias + beta * c, and a_sum or b_sum zeros; a batch of 0 products
// writes nothing. Each product of a batch has the bits that it has in a call of its own on the CPU.

#pragma once

#include "core/base/tensor.h"

namespace anyorder::kernels {

// Several products of one shape in one call: the operands of product i lie i times so many elements
// behind those of the first, which the views of GemmArgs describe. With 0 all products read the
// same operand. A caller that has the operands in one allocation, at equal distances, saves a
// launch for each product, and the device is full where one product alone would leave it half
// empty.
struct GemmBatch {
  int64_t count = 1;
  int64_t a = 0;
  int64_t b = 0;
  int64_t bias = 0;
  int64_t c = 0;    // at least M * N, unless count is 1: no product writes what another does
  int64_t sum = 0;  // of a_sum or b_sum, at least as long as one of them
};

// c = op(a) op(b) + bias + beta * c, with op(a) [M, K], op(b) [K, N].
struct GemmArgs {
  ConstTensorView a;  // [M, K], or [K, M] with transpose_a   T
  ConstTensorView b;  // [K, N], or [N, K] with transpose_b   T
  bool transpose_a = false;
  bool transpose_b = false;
  ConstTensorView bias;  // [N] T or null, added to every row
  float scale = 1.0f;    // of the product; with a bias 1
  float beta = 0.0f;     // 0: c is overwritten and may hold anything before; 1: c is added to
  TensorView c;          // [M, N]  T or G
  // At most one of them, and none with a bias: sums of an operand over K, overwritten whatever beta
  // is. Where c is a weight's gradient, the sums of dy are the bias's; libraries make them while
  // they read dy for the product. The operand is stored with K rows.
  TensorView a_sum = {};  // [M] G or null: a_sum[m] = sum over k of a[k, m]; with transpose_a
  TensorView b_sum = {};  // [N] G or null: b_sum[n] = sum over k of b[k, n]; no transpose_b
  GemmBatch batch = {};
};

// y[c] (+)= sum over rows of x[r, c]. No rows: zeros, or what y was.
struct ColumnSumArgs {
  ConstTensorView x;  // [rows, columns]  T
  float beta = 0.0f;  // 0 or 1
  TensorView y;       // [columns]  G
};

}  // namespace anyorder::kernels
