#include "core/model/embedding_block.h"

#include <cmath>

namespace anyorder {

EmbeddingBlock::EmbeddingBlock(const NetworkShape& shape)
    : scale_(shape.model.scale_embedding
                 ? static_cast<float>(std::sqrt(static_cast<double>(shape.model.model_dim)))
                 : 1.0f),
      mask_ids_(static_cast<size_t>(shape.batch.batch_size * shape.batch.query_rows), 0) {}

void EmbeddingBlock::Forward(const StepContext& context, const NetworkWeights& weights) const {
  const Batch& batch = context.batch();
  const TensorView input = context.activations.layers[0].input;
  const int64_t content = context.shape.batch.batch_size * context.shape.batch.content_rows;
  const kernels::Dropout dropout = context.Dropout(kEmbeddingSite);
  context.backend.EmbeddingForward({.table = weights.embedding,
                                    .ids = batch.tokens.data(),
                                    .scale = scale_,
                                    .dropout = dropout,
                                    .row_ids = batch.row_ids.data(),
                                    .y = Rows(input, 0, content)},
                                   context.stream);
  if (mask_ids_.empty()) return;
  context.backend.EmbeddingForward(
      {.table = weights.mask_embedding,
       .ids = mask_ids_.data(),
       .dropout = dropout,
       .row_ids = batch.row_ids.data() + content,
       .y = Rows(input, content, static_cast<int64_t>(mask_ids_.size()))},
      context.stream);
}

void EmbeddingBlock::Backward(const StepContext& context, const NetworkGradients& gradients) const {
  const Batch& batch = context.batch();
  const TensorView dinput = context.activations.dinput;
  const int64_t content = context.shape.batch.batch_size * context.shape.batch.content_rows;
  const kernels::Dropout dropout = context.Dropout(kEmbeddingSite);
  context.backend.EmbeddingBackward({.dy = Rows(dinput, 0, content),
                                     .ids = batch.tokens.data(),
                                     .scale = scale_,
                                     .dropout = dropout,
                                     .row_ids = batch.row_ids.data(),
                                     .dtable = gradients.embedding},
                                    context.stream);
  if (mask_ids_.empty()) return;
  context.backend.EmbeddingBackward(
      {.dy = Rows(dinput, content, static_cast<int64_t>(mask_ids_.size())),
       .ids = mask_ids_.data(),
       .dropout = dropout,
       .row_ids = batch.row_ids.data() + content,
       .dtable = gradients.mask_embedding},
      context.stream);
}

}  // namespace anyorder
