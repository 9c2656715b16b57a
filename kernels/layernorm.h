// Residual + dropout + LayerNorm or RMSNorm in one pass (post-LN, Vaswani et al. 2017).
//
//   sum = residual + dropout(x);  y = (sum - mean) * rstd * gamma + beta
// over the last dimension, rstd = 1 / sqrt(population variance + epsilon). With a null residual:
// plain LayerNorm of dropout(x). Mean and variance are those of `sum` as stored, rounded to T, so
// that backward sees exactly what forward normalised. A constant row gives y = beta.
//
// With null mean and beta: RMSNorm (Zhang & Sennrich 2019),
//   y = round(sum * rstd) * gamma,  rstd = 1 / sqrt(mean square + epsilon),
// which rounds to T before it multiplies, as the released Llama, Qwen and LLaDA code does.

#pragma once

#include "core/base/tensor.h"
#include "kernels/dropout.h"

namespace anyorder::kernels {

struct LayerNormForwardArgs {
  ConstTensorView x;         // [rows, columns]  T
  ConstTensorView residual;  // [rows, columns]  T or null
  ConstTensorView gamma;     // [columns]        T
  ConstTensorView beta;      // [columns]        T; null: RMSNorm
  float epsilon = 1e-12f;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView sum;   // [rows, columns]  T, kept for backward; may be x
  TensorView mean;  // [rows]           G; null: RMSNorm
  TensorView rstd;  // [rows]           G
  TensorView y;     // [rows, columns]  T
};

// With g = gamma * dy and xhat = (sum - mean) * rstd:
//   dsum = rstd * (g - mean_c(g) - xhat * mean_c(g * xhat)); dresidual = dsum; dx = dropout'(dsum)
//   dgamma = sum_r dy * xhat;  dbeta = sum_r dy
// RMSNorm, with null mean and dbeta: xhat = sum * rstd and dsum = rstd * (g - xhat * mean_c(g *
// xhat)).
struct LayerNormBackwardArgs {
  ConstTensorView dy;   // [rows, columns]  T
  ConstTensorView sum;  // from forward, as are mean and rstd
  ConstTensorView mean;
  ConstTensorView rstd;
  ConstTensorView gamma;  // [columns]  T
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView dx;         // [rows, columns]  T, through dropout; may be dy
  TensorView dresidual;  // [rows, columns]  T; null if forward had no residual
  TensorView dgamma;     // [columns]  G, overwritten
  TensorView dbeta;      // [columns]  G, overwritten; null: RMSNorm
};

}  // namespace anyorder::kernels
