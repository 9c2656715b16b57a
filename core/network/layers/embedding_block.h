// The network's input. Content rows start as token embeddings, query rows as one learned vector
// (mask_emb), since a query must not know its own token. Learned positions and segments are added
// to both; then come a LayerNorm, if the model has one there (BERT, Devlin et al. 2019), and
// dropout. Positions in pairs (sigma-GPT, Pannatier et al. 2024) are two entries of half the width
// side by side: the row's own and that of the token that it predicts.

#pragma once

#include <cstdint>

#include "core/network/layers/adaptive.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class EmbeddingBlock {
 public:
  EmbeddingBlock(const NetworkShape& shape, DeviceInputs& inputs);

  void SetInputs(const Batch& batch);

  // Writes the input of layer 0.
  void Forward(const StepContext& context) const;
  // Adds the gradient of layer 0's input (activations.dinput, overwritten) to those of the tables
  // and mask_emb; overwrites the LayerNorm's.
  void Backward(const StepContext& context) const;

 private:
  // Rows of tokens and mask_emb alone, dropped out.
  void ForwardTokens(const StepContext& context, const kernels::Dropout& dropout,
                     TensorView rows) const;
  void BackwardTokens(const StepContext& context, const kernels::Dropout& dropout) const;
  const int32_t* PositionIds(const StepContext& context) const {
    return position_pairs_.host.empty() ? context.device.row_pos.data() : position_pairs_.data();
  }

  float scale_;  // of token embeddings: sqrt(d) for Transformer-XL
  AdaptiveEmbedding adaptive_;
  ComputedArray<int32_t> mask_ids_;        // [B * Q] zeros: mask_emb is a table with one row
  ComputedArray<int32_t> position_pairs_;  // [N, 2] own, next; empty unless positions are in pairs
};

}  // namespace anyorder
