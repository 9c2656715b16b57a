// Operations on rows: copy and gather, embedding lookup with its gradient, rotary positions,
// normalisation.

#pragma once

#include <cstdint>

#include "core/base/tensor.h"
#include "kernels/dropout.h"

namespace anyorder::kernels {

// Rows of `columns` elements between strided places; strides count elements. Moves recurrence
// memory.
struct CopyRowsArgs {
  ConstTensorView source;
  int64_t source_begin = 0;  // element index of the first row
  int64_t source_stride = 0;
  TensorView destination;  // same dtype
  int64_t destination_begin = 0;
  int64_t destination_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// y[r] = x[rows[r]] (gather), or with `scatter_add`: y[rows[r]] += x[r]. Rows must not repeat in a
// scatter.
struct GatherRowsArgs {
  ConstTensorView x;              // [*, columns]  T
  const int32_t* rows = nullptr;  // [num_rows]
  int64_t num_rows = 0;
  bool scatter_add = false;
  TensorView y;  // [*, columns]  T
};

// y[r] = dropout(scale * table[ids[r]]). An id outside [0, vocab) aborts.
struct EmbeddingForwardArgs {
  ConstTensorView table;         // [vocab, columns]  T
  const int32_t* ids = nullptr;  // [rows], each in [0, vocab)
  float scale = 1.0f;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView y;  // [rows, columns]  T
};

// dtable[ids[r]] += scale * dropout'(dy[r]), rows in increasing order (bitwise repeatable).
struct EmbeddingBackwardArgs {
  ConstTensorView dy;  // [rows, columns]  T
  const int32_t* ids = nullptr;
  float scale = 1.0f;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView dtable;  // [vocab, columns]  G, added to
};

// Rotary positions (Su et al. 2021, section 3.4): every head's pairs (x[f], x[f + D/2]) are turned
// by an angle of their row.
//
//   y[f]       = x[f] cos[f] - x[f + D/2] sin[f]
//   y[f + D/2] = x[f + D/2] cos[f] + x[f] sin[f]          0 <= f < D/2
//
// With angles pos * base^(-2f/D) the dot product of a turned query and a turned key depends on
// pos_i - pos_j alone. The caller gives the angles, because layers share them; positions of any
// sign and order do. Pairs lie half a head apart, not side by side. `inverse` turns back: the
// transposed map, which gives dx from dy.
struct RotaryArgs {
  ConstTensorView x;       // [rows, H*D]  T, D even
  ConstTensorView angles;  // [rows, D]    G: cosines of a row's D/2 angles, then their sines
  bool inverse = false;
  TensorView y;  // [rows, H*D]  T; may be x
};

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
