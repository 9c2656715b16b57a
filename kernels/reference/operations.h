// The operations of kernels/backend.h as plain loops in double: the executable specification.
//
// Read a declaration's formula in its contract header, then its loop here. Nothing is fast and
// nothing is clever; arguments were checked; temporaries are allocated freely, which a device
// backend may not do.

#pragma once

#include <type_traits>

#include "core/base/check.h"
#include "core/base/dtype.h"
#include "kernels/host_memory.h"

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
void Run(const HeadLossArgs& args);
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

// How tensors are read and written: storage of T, arithmetic in double.

// The element type of parameter gradients and statistics where activations are of type T.
template <typename T>
using GradientOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
double Load(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    return static_cast<double>(x);
  }
}

template <typename T>
T Round(double x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// Calls operation.operator()<T>() with the storage type that `dtype` names.
template <typename Operation>
void WithStorage(DType dtype, Operation operation) {
  switch (dtype) {
    case DType::kFloat64: return operation.template operator()<double>();
    case DType::kFloat32: return operation.template operator()<float>();
    case DType::kBFloat16: return operation.template operator()<BFloat16>();
    default: ANYORDER_CHECK(false) << "no arithmetic on " << Name(dtype);
  }
}

}  // namespace anyorder::kernels::reference
