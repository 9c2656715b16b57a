// The network from its input to the state that is read out: embedding, layers and, in a pre-LN
// network, the last LayerNorm. Training, evaluation and generation share it.

#pragma once

#include "core/network/layers/attention_tables.h"
#include "core/network/layers/embedding_block.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// Writes activations.output. `tables` are prepared for the microbatch.
void ForwardPass(const StepContext& context, const EmbeddingBlock& embedding,
                 const AttentionTables& tables);

}  // namespace anyorder
