// What stands around both parts of a layer, attention and feed-forward:
//   post-LN (Vaswani et al. 2017; XLNet, BERT):         y = LayerNorm(x + dropout(part(x)))
//   pre-LN (Longformer's character model, option of
//           Transformer-XL):                            y = x + dropout(part(LayerNorm(x)))
// A pre-LN network has one more LayerNorm after its last layer. All matrices are [rows, d] T, their
// gradients too.

#pragma once

#include <cstdint>

#include "core/network/tensors/step_context.h"

namespace anyorder {

// One LayerNorm's parameters and what its forward keeps.
struct NormTensors {
  ConstTensorView gamma, beta;  // [d]
  TensorView sum;               // [rows, d] T, what is normalised
  TensorView mean, rstd;        // [rows] G
};
struct NormGradients {
  TensorView gamma, beta;  // [d] G, overwritten
};

// y = LayerNorm(norm.sum).
void NormForward(const StepContext& context, const NormTensors& norm, TensorView y);
// dx from dy, which may be the same.
void NormBackward(const StepContext& context, const NormTensors& norm,
                  const NormGradients& gradients, ConstTensorView dy, TensorView dx);

// How a part's result is added to its input, for the n rows that the layer computes.
struct Residual {
  kernels::Dropout dropout;
  const int32_t* row_ids = nullptr;  // [n] logical ids, for dropout
  NormTensors norm;                  // post-LN only
};

// `branch` [n, d] is the part's result and is overwritten; x [n, d] its input; y [n, d] may not be
// either.
void ResidualForward(const StepContext& context, const Residual& residual, TensorView branch,
                     ConstTensorView x, TensorView y);
// From dy the gradient of the part's result. Post-LN also writes dx, the gradient along the
// residual; with pre-LN that is dy, which AddResidual adds once the gradient through the part is
// there.
void ResidualBackward(const StepContext& context, const Residual& residual,
                      const NormGradients& gradients, ConstTensorView dy, TensorView dbranch,
                      TensorView dx);
// dx += dy with pre-LN; nothing with post-LN.
void AddResidual(const StepContext& context, ConstTensorView dy, TensorView dx);

// Keys' and values' tensors. The values' lie behind the keys', in one allocation: both projections
// are one call.
template <typename View>
struct KeyValue {
  View k;
  View v;
};
// y.k = x w.k + bias.k, and the same of v; the biases may be null.
void ProjectKeyValue(const StepContext& context, ConstTensorView x,
                     const KeyValue<ConstTensorView>& weights,
                     const KeyValue<ConstTensorView>& biases, const KeyValue<TensorView>& y);
// Their gradients.
void KeyValueBackward(const StepContext& context, ConstTensorView x,
                      const KeyValue<ConstTensorView>& dy, const KeyValue<TensorView>& dweights,
                      const KeyValue<TensorView>& dbiases);

// Gradients of a projection y = x w + bias inside a part; dbias may be null.
void ProjectionBackward(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                        TensorView dweight, TensorView dbias);

}  // namespace anyorder
