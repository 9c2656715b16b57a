// The network from its input to the state that is read out: embedding, layers and, in a pre-LN network, the last LayerNorm.
// Training, evaluation and generation share it.

#pragma once

#include "core/model/attention_tables.h"
#include "core/model/embedding_block.h"
#include "core/model/layer_tensors.h"
#include "core/model/step_context.h"
#include "core/model/sublayer.h"

namespace anyorder {

// Writes activations.output. `tables` are prepared for the microbatch.
void ForwardPass(const StepContext& context,
                 const EmbeddingBlock& embedding,
                 const AttentionTables& tables,
                 const NetworkWeights& weights);

// The LayerNorm after the last layer, of a pre-LN network.
NormTensors FinalNorm(const StepContext& context, const NetworkWeights& weights);

}  // namespace anyorder
