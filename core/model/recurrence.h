// Recurrence memory (Transformer-XL, Dai et al. 2019, section 3.2): each layer's input states of earlier segments,
// without gradient. Layout [B, L, M, d], so that a lane's memory is one contiguous piece.

#pragma once

#include "core/model/layer_tensors.h"
#include "core/model/step_context.h"
#include "core/model/sublayer.h"

namespace anyorder {

// The input of a layer's keys and values: for each lane its memory of that layer, then its content rows (then its
// query rows, if those are keys) of `input` [N, d], the layer's input or, in a pre-LN network, that normalised. Memory is
// normalised here then. [B * K, d]; `input` itself where nothing has to be moved.
ConstTensorView KeysInput(const StepContext& context,
                          int64_t layer,
                          const LayerTensors<ConstTensorView>& weights,
                          TensorView input);

// The LayerNorm of the memory that the last KeysInput of a pre-LN network has moved.
NormTensors MemoryNorm(const StepContext& context, const LayerTensors<ConstTensorView>& weights);

// memory_out[:, layer] = the last M rows of [memory_in[:, layer] ; the first U content rows of the layer's input].
void AdvanceMemory(const StepContext& context, int64_t layer);

}  // namespace anyorder
