// The network from its input to the state that is read out: embedding, layers and, in a pre-LN
// network, the last LayerNorm. Training, evaluation and generation share it.

#pragma once

#include "core/network/layers/attention_block.h"
#include "core/network/layers/attention_tables.h"
#include "core/network/layers/embedding_block.h"
#include "core/network/layers/feed_forward_block.h"
#include "core/network/layers/operations.h"
#include "core/network/layers/recurrence.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// Writes activations.output. `tables` are prepared for the microbatch.
inline void ForwardPass(const StepContext& context, const EmbeddingBlock& embedding,
                        const AttentionTables& tables) {
  const Activations& a = context.activations;
  const bool pre_norm = context.shape.model.pre_norm();
  embedding.Forward(context);
  const int64_t num_layers = context.shape.model.num_layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const bool last = layer == num_layers - 1;
    // What the last layer of a pre-LN network writes is normalised once more.
    const TensorView last_output = pre_norm ? a.final_norm.sum : a.output;
    BeginLayer(context.args, layer);
    KeepStates(context, layer);
    AttentionBlockForward(context, tables, layer);
    FeedForwardBlockForward(context, layer, last ? last_output : a.layers[layer + 1].input);
  }
  if (pre_norm) NormForward(context, {context.weights.final_norm, a.final_norm}, a.output);
}

}  // namespace anyorder
