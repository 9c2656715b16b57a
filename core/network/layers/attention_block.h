// Multi-head attention with its residual and LayerNorm (operations.h), for both streams at once
// (Yang et al. 2019, sections 2.3 and 2.5):
//   q = x Wq;  [k | v] = [memory ; x_content] [Wk | Wv];  r = positions Wr
//   part(x) = attention(q, k, v, r) Wo^T
// Query rows use the content stream's keys and values, so that one call serves both. With groups,
// query slots are keys, too. Rotary positions turn q and k instead of r; other models have biases,
// and no r. In a pre-LN network x and memory are normalised first, memory by this step's
// parameters. Global slots with projections of their own (attention_tables.h) are a second call,
// whose rows take the place of those that the first has left at 0.

#pragma once

#include "core/network/layers/attention_tables.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// Reads activations.layers[layer].input, writes its attention_output.
void AttentionBlockForward(const StepContext& context, const AttentionTables& tables,
                           int64_t layer);

// Computes again what backward reads of the part and its forward did not keep
// (NetworkShape::OverlaidPart): the same bits, from the same memory.
void AttentionBlockRecompute(const StepContext& context, const AttentionTables& tables,
                             int64_t layer);

// Reads activations.dmiddle (gradient of attention_output, the rows that the layer computes),
// writes activations.dinput (gradient of all rows of the layer's input) and every attention
// gradient of the layer. Memory gets no gradient. Biases shared by all layers are added to;
// everything else is overwritten.
void AttentionBlockBackward(const StepContext& context, const AttentionTables& tables,
                            int64_t layer);

}  // namespace anyorder
