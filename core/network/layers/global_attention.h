// The second attention call of a layer: global slots with projections of their own
// (global_slots.h).

#pragma once

#include "core/network/layers/attention_tables.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// Adds to `attended` the global rows, which the first call has left at 0. `input` [N, d] is what
// the layer's projections multiply, `keys_input` [B * K, d] the same for keys. REQUIRES:
// shape.has_global_rows(layer).
void GlobalAttentionForward(const StepContext& context, const AttentionTables& tables,
                            int64_t layer, const LayerTensors<ConstTensorView>& weights,
                            ConstTensorView input, ConstTensorView keys_input);

// From activations.dattended: overwrites the gradients of global_q, global_k, global_v and their
// biases, adds to `dinput` [N, d] what comes through global_q, and leaves the gradients of keys and
// values in activations.dglobal_k and dglobal_v. In a layer without global rows only clears the
// gradients.
void GlobalAttentionBackward(const StepContext& context, const AttentionTables& tables,
                             int64_t layer, const LayerTensors<ConstTensorView>& weights,
                             const LayerTensors<TensorView>& gradients, ConstTensorView input,
                             ConstTensorView keys_input, TensorView dinput);

}  // namespace anyorder
