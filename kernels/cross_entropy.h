// Softmax cross-entropy of a linear layer on the rows that carry a target, without ever holding all
// logits:
//   logits[r] = x[r] . weight^T + bias;   loss[r] = logsumexp(logits[r]) - logits[r][label[r]]
// With gradients: d(sum_r row_weight[r] * loss[r]). Rows of weight 0 get loss 0 and no gradient,
// and their labels are not read; any other label outside [0, vocab) aborts.

#pragma once

#include "core/base/tensor.h"

namespace anyorder::kernels {

struct LinearCrossEntropyArgs {
  ConstTensorView x;                   // [rows, columns]   T
  ConstTensorView weight;              // [vocab, columns]  T
  ConstTensorView bias;                // [vocab]           T or null
  const int32_t* labels = nullptr;     // [rows]
  const float* row_weights = nullptr;  // [rows]
  TensorView loss;                     // [rows]  G
  // Null in evaluation. With dx each of the others may be null: not asked for.
  TensorView dx;         // [rows, columns]   T, overwritten
  TensorView dweight;    // [vocab, columns]  G, added to (tied embeddings share it)
  TensorView dbias;      // [vocab]           G, added to
  TensorView workspace;  // uint8, LinearCrossEntropyWorkspaceBytes(...) or more
};

}  // namespace anyorder::kernels
