// An operation as a value: which one it is, and its arguments. Backends get each call as one, so
// that what is done for every operation stands in one place.

#pragma once

#include <variant>

#include "core/base/tensor.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/losses.h"
#include "kernels/rows.h"

namespace anyorder::kernels {

// Arguments of operations that Backend takes one by one; Backend says what they do.
struct SumOfSquaresArgs {
  ConstTensorView x;
  TensorView sums;
};
struct AddArgs {
  ConstTensorView a;
  ConstTensorView b;
  TensorView y;
};
struct CastArgs {
  ConstTensorView x;
  TensorView y;
};
struct FillZeroArgs {
  TensorView x;
};
struct DigestArgs {
  ConstTensorView x;
  TensorView digest;
};

// The arguments are the caller's and live as long as the call.
using Operation =
    std::variant<const GemmArgs*, const ColumnSumArgs*, const AttentionForwardArgs*,
                 const AttentionBackwardArgs*, const ActivationForwardArgs*,
                 const ActivationBackwardArgs*, const DropoutArgs*, const LayerNormForwardArgs*,
                 const LayerNormBackwardArgs*, const EmbeddingForwardArgs*,
                 const EmbeddingBackwardArgs*, const LinearCrossEntropyArgs*, const HeadLossArgs*,
                 const AdamWArgs*, const ComputeGradientClipArgs*, const CopyRowsArgs*,
                 const GatherRowsArgs*, const RotaryArgs*, const SumOfSquaresArgs*, const AddArgs*,
                 const CastArgs*, const FillZeroArgs*, const DigestArgs*>;

}  // namespace anyorder::kernels
