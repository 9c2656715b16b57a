// Recurrence memory (Transformer-XL, Dai et al. 2019, section 3.2): each layer's input states of
// earlier segments, without gradient. Where they lie is memory_ring.h's.

#pragma once

#include "core/network/layers/operations.h"

namespace anyorder {

// The input of a layer's keys and values: for each lane its memory of that layer, then its content
// rows (then its query rows, if those are keys) of `input` [N, d], the layer's input or, in a
// pre-LN network, that normalised. Memory is normalised here then. [B * K, d]; `input` itself where
// nothing has to be moved.
ConstTensorView KeysInput(const StepContext& context, int64_t layer, TensorView input);

// Into the free slots: the last F of the first U content rows of the layer's input. With those M
// states are the newest of [memory ; the U rows], which the next step reads.
void KeepStates(const StepContext& context, int64_t layer);

}  // namespace anyorder
