// The network's input: content rows start as dropped-out token embeddings, query rows as one learned vector
// (mask_emb), since a query must not know its own token.

#pragma once

#include <cstdint>
#include <vector>

#include "core/model/layer_tensors.h"
#include "core/model/step_context.h"

namespace anyorder {

class EmbeddingBlock {
 public:
  explicit EmbeddingBlock(const NetworkShape& shape);

  // Writes the input of layer 0.
  void Forward(const StepContext& context, const NetworkWeights& weights) const;
  // Adds the gradient of layer 0's input (activations.dinput) to the embedding's and mask_emb's.
  void Backward(const StepContext& context, const NetworkGradients& gradients) const;

 private:
  float scale_;                    // of token embeddings: sqrt(d) for Transformer-XL
  std::vector<int32_t> mask_ids_;  // [B * Q] zeros: mask_emb is a table with one row
};

}  // namespace anyorder
