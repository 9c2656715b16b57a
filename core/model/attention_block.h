// Relative multi-head attention with its residual and LayerNorm, for both streams at once (Yang et al. 2019,
// sections 2.3 and 2.5; post-LN):
//   q = x Wq;  [k | v] = [memory ; x_content] [Wk | Wv];  r = positions Wr
//   y = LayerNorm(x + dropout(attention(q, k, v, r) Wo^T))
// Query rows use the content stream's keys and values, so that one call serves both.

#pragma once

#include "core/model/layer_tensors.h"
#include "core/model/positions.h"
#include "core/model/step_context.h"

namespace anyorder {

// Reads activations.layers[layer].input, writes its attention_output.
void AttentionBlockForward(const StepContext& context,
                           const PositionTables& positions,
                           int64_t layer,
                           const LayerTensors<ConstTensorView>& weights);

// Reads activations.dmiddle (gradient of attention_output, the rows that the layer computes), writes
// activations.dinput (gradient of all rows of the layer's input) and every attention gradient of the layer.
// Memory gets no gradient. Biases shared by all layers are added to; everything else is overwritten.
void AttentionBlockBackward(const StepContext& context,
                            const PositionTables& positions,
                            int64_t layer,
                            const LayerTensors<ConstTensorView>& weights,
                            const LayerTensors<TensorView>& gradients);

}  // namespace anyorder
