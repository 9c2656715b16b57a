// The operations of kernels/backend.h as plain loops in double: the executable specification.
//
// Read a declaration's formula in its contract header, then its loop here. Nothing is fast and
// nothing is clever; temporaries are allocated freely, which a device backend may not do.

#pragma once

#include "kernels/backend.h"

namespace anyorder::kernels::reference {

void Gemm(const GemmArgs& args);
void ColumnSum(const ColumnSumArgs& args);
void AttentionForward(const AttentionForwardArgs& args);
void AttentionBackward(const AttentionBackwardArgs& args);
void ActivationForward(const ActivationForwardArgs& args);
void ActivationBackward(const ActivationBackwardArgs& args);
void DropoutApply(const DropoutArgs& args);
void LayerNormForward(const LayerNormForwardArgs& args);
void LayerNormBackward(const LayerNormBackwardArgs& args);
void EmbeddingForward(const EmbeddingForwardArgs& args);
void EmbeddingBackward(const EmbeddingBackwardArgs& args);
void LinearCrossEntropy(const LinearCrossEntropyArgs& args);
void AdamW(const AdamWArgs& args);
void CopyRows(const CopyRowsArgs& args);
void GatherRows(const GatherRowsArgs& args);
void RotaryApply(const RotaryArgs& args);
void SumOfSquares(const ConstTensorView& x, const TensorView& sums);
void Add(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y);
void Cast(const ConstTensorView& x, const TensorView& y);

// The factor of element (row, column): 0 where dropped, else 1 / (keep probability).
inline double DropoutFactor(const Dropout& dropout, const int32_t* row_ids, int64_t row,
                            int64_t column) {
  if (!dropout.enabled()) return 1.0;
  const bool keep =
      KeepElement(dropout, static_cast<uint32_t>(row_ids[row]), static_cast<uint32_t>(column));
  return keep ? double{dropout.scale()} : 0.0;
}

}  // namespace anyorder::kernels::reference
