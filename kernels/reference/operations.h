// The operations of kernels/backend.h as plain loops in double: the executable specification.
//
// Read a declaration's formula in its contract header, then its loop here. Nothing is fast and
// nothing is clever; arguments were checked; temporaries are allocated freely, which a device
// backend may not do.

#pragma once

#include "kernels/host_operations.h"

namespace anyorder::kernels::reference {

void Run(const GemmArgs& args);
void Run(const ColumnSumArgs& args);
void Run(const AttentionForwardArgs& args);
void Run(const AttentionBackwardArgs& args);
void Run(const ActivationForwardArgs& args);
void Run(const ActivationBackwardArgs& args);
void Run(const DropoutArgs& args);
void Run(const LayerNormForwardArgs& args);
void Run(const LayerNormBackwardArgs& args);
void Run(const EmbeddingForwardArgs& args);
void Run(const EmbeddingBackwardArgs& args);
void Run(const LinearCrossEntropyArgs& args);
void Run(const AdamWArgs& args);
void Run(const CopyRowsArgs& args);
void Run(const GatherRowsArgs& args);
void Run(const RotaryArgs& args);
void Run(const SumOfSquaresArgs& args);
void Run(const AddArgs& args);
void Run(const CastArgs& args);
void Run(const FillZeroArgs& args);
inline void Run(const ComputeGradientClipArgs& args) { ComputeGradientClipOnHost(args); }
inline void Run(const DigestArgs& args) { DigestOnHost(args); }

// The factor of element (row, column): 0 where dropped, else 1 / (keep probability).
inline double DropoutFactor(const Dropout& dropout, const int32_t* row_ids, int64_t row,
                            int64_t column) {
  if (!dropout.enabled()) return 1.0;
  const bool keep =
      KeepElement(dropout, static_cast<uint32_t>(row_ids[row]), static_cast<uint32_t>(column));
  return keep ? double{dropout.scale()} : 0.0;
}

}  // namespace anyorder::kernels::reference
