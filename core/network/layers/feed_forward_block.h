// Position-wise feed-forward with its residual and LayerNorm (operations.h), both streams at once:
//   part(x) = dropout(act(x W1^T + b1)) W2^T + b2

#pragma once

#include "core/network/tensors/step_context.h"

namespace anyorder {

// Reads the layer's attention_output; writes `output` [n, d].
void FeedForwardBlockForward(const StepContext& context, int64_t layer, TensorView output);

// Computes again what backward reads of the part and its forward did not keep
// (NetworkShape::OverlaidPart): the same bits. REQUIRES: attention_output is there.
void FeedForwardBlockRecompute(const StepContext& context, int64_t layer);

// Reads activations.dinput (gradient of the layer's output in its first n rows), writes
// activations.dmiddle (gradient of attention_output) and overwrites the layer's feed-forward
// gradients.
void FeedForwardBlockBackward(const StepContext& context, int64_t layer);

}  // namespace anyorder
