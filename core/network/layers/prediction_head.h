// The transform that BERT puts between the network and the tied softmax (Devlin et al. 2019;
// released run_pretraining.py):
//   y = LayerNorm(act(x W^T + b))

#pragma once

#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// x [targets, d] to activations.head_output.
void PredictionHeadForward(const StepContext& context, const NetworkWeights& weights,
                           ConstTensorView x);

// From dy, the gradient of head_output, dx [targets, d], which may be dy. Overwrites the head's
// gradients; head_output is overwritten.
void PredictionHeadBackward(const StepContext& context, const NetworkWeights& weights,
                            const NetworkGradients& gradients, ConstTensorView x,
                            ConstTensorView dy, TensorView dx);

}  // namespace anyorder
