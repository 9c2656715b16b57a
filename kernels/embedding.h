// Table lookup and its gradient.

#pragma once

#include "core/base/tensor.h"
#include "kernels/dropout.h"

namespace anyorder::kernels {

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

}  // namespace anyorder::kernels
