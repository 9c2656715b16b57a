// Losses with their gradients.

#pragma once

#include <cstdint>

#include "core/base/tensor.h"

namespace anyorder::kernels {

// Softmax cross-entropy of a linear layer on the rows that carry a target, without ever holding all
// logits:
//   logits[r] = x[r] . weight^T + bias;   loss[r] = logsumexp(logits[r]) - logits[r][label[r]]
// With gradients: d(sum_r row_weight[r] * loss[r]). Rows of weight 0 get loss 0 and no gradient,
// and their labels are not read; any other label outside [0, vocab) aborts.
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

// Losses of heads that hold all their logits, because these are few: of classes, of choices, of the
// places where a span may begin, of yes or no, and of a score. With gradients:
// d(sum_r row_weight[r] * loss[r]). Heads over a vocabulary: the loss above.
//
//   kSoftmax        over the row's valid columns V, with p = softmax of their logits x:
//                   loss = -sum_{j in V} t[j] log p[j],  dx[j] = p[j] - t[j]
//                   t[j] = (1 - e) [j = label] + e / |V|      (e: label smoothing, Szegedy et al.
//                   2016, section 7, over the valid columns alone)
//   kSigmoid        of one logit x and y in {0, 1}; with s = x where y = 0, else -x:
//                   loss = log(1 + exp(s)),  dx = sigmoid(x) - y
//   kSquaredError   loss = (x - target)^2,  dx = 2 (x - target)
//
// Rows of weight 0 get loss 0 and no gradient; their labels, targets, valid columns and logits are
// not read, nor are logits of columns that are not valid: they may be anything. Any other label
// that is not a valid column of its row (kSigmoid: that is not 0 or 1) aborts, so a row of a weight
// has a valid column. A logit that is not a number, and a largest logit that is not finite, make
// the row's loss not finite. Nothing overflows on the way: the largest logit is taken out first.
enum class HeadLossKind { kSoftmax, kSigmoid, kSquaredError };

struct HeadLossArgs {
  HeadLossKind kind = HeadLossKind::kSoftmax;
  ConstTensorView logits;              // [rows, columns] T; kSigmoid, kSquaredError: one column
  const uint8_t* valid = nullptr;      // [rows * columns] kSoftmax: 1 where a column takes part, 0
                                       // where not; null: all do
  const int32_t* labels = nullptr;     // [rows] kSoftmax: a valid column; kSigmoid: 0 or 1
  const float* targets = nullptr;      // [rows] kSquaredError
  const float* row_weights = nullptr;  // [rows]
  double smoothing = 0;                // e of kSoftmax, in [0, 1); else 0
  TensorView loss;                     // [rows] G
  // Null in evaluation; otherwise overwritten, with 0 where there is no gradient. It may be the
  // memory of `logits`, on every backend.
  TensorView dlogits;  // [rows, columns] T
};

}  // namespace anyorder::kernels
