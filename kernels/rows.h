// Operations on rows: copy and gather, embedding lookup with its gradient, rotary positions.

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

}  // namespace anyorder::kernels
