#include "core/network/layers/embedding_block.h"

#include <cmath>

namespace anyorder {
namespace {

// The first rows of the step, in place; its own gradient.
void DropOut(const StepContext& context, const kernels::Dropout& dropout, TensorView rows) {
  if (!dropout.enabled()) return;
  context.backend.DropoutApply(
      {.x = rows, .dropout = dropout, .row_ids = context.device.row_ids(), .y = rows},
      context.stream);
}

}  // namespace

EmbeddingBlock::EmbeddingBlock(const NetworkShape& shape, DeviceInputs& inputs)
    : scale_(shape.model.scale_embedding
                 ? static_cast<float>(std::sqrt(static_cast<double>(shape.model.model_dim)))
                 : 1.0f),
      adaptive_(shape, inputs),
      mask_ids_(shape.batch.batch_size * shape.batch.query_rows, inputs) {}

void EmbeddingBlock::SetInputs(const Batch& batch) {
  adaptive_.SetInputs(batch);
  mask_ids_.Set();
}

void EmbeddingBlock::ForwardTokens(const StepContext& context, const NetworkWeights& weights,
                                   const kernels::Dropout& dropout, TensorView rows) const {
  const int64_t content = context.shape.batch.batch_size * context.shape.batch.content_rows;
  const TensorView words = Rows(rows, 0, content);
  if (context.shape.model.projects_clusters()) {
    adaptive_.Forward(context, weights, scale_, words);
    DropOut(context, dropout, words);
  } else {
    context.backend.EmbeddingForward({.table = weights.embedding,
                                      .ids = adaptive_.TableRows(context),
                                      .scale = scale_,
                                      .dropout = dropout,
                                      .row_ids = context.device.row_ids(),
                                      .y = words},
                                     context.stream);
  }
  if (mask_ids_.host.empty()) return;
  context.backend.EmbeddingForward(
      {.table = weights.mask_embedding,
       .ids = mask_ids_.data(),
       .dropout = dropout,
       .row_ids = context.device.row_ids() + content,
       .y = Rows(rows, content, static_cast<int64_t>(mask_ids_.host.size()))},
      context.stream);
}

void EmbeddingBlock::AddTable(const StepContext& context, ConstTensorView table, const int32_t* ids,
                              TensorView rows) const {
  if (table.is_null()) return;
  const TensorView entries = context.activations.branch;
  context.backend.EmbeddingForward({.table = table, .ids = ids, .y = entries}, context.stream);
  context.backend.Add(rows, entries, rows, context.stream);
}

void EmbeddingBlock::Forward(const StepContext& context, const NetworkWeights& weights) const {
  const TensorView input = context.activations.layers[0].input;
  const kernels::Dropout dropout = context.Dropout(kEmbeddingSite);
  if (!context.shape.model.sums_embeddings())
    return ForwardTokens(context, weights, dropout, input);
  const bool has_norm = context.shape.model.embedding_layer_norm;
  const TensorView sum = has_norm ? context.activations.embedding_sum : input;
  ForwardTokens(context, weights, {}, sum);
  AddTable(context, weights.position_table, context.device.rows().pos, sum);
  AddTable(context, weights.segment_table, context.device.rows().seg, sum);
  if (has_norm) {
    context.backend.LayerNormForward(
        {.x = sum,
         .gamma = weights.embedding_norm_gamma,
         .beta = weights.embedding_norm_beta,
         .epsilon = static_cast<float>(context.shape.model.layer_norm_epsilon),
         .sum = sum,
         .mean = context.activations.embedding_mean,
         .rstd = context.activations.embedding_rstd,
         .y = input},
        context.stream);
  }
  DropOut(context, dropout, input);
}

void EmbeddingBlock::BackwardTokens(const StepContext& context, const NetworkWeights& weights,
                                    const NetworkGradients& gradients,
                                    const kernels::Dropout& dropout) const {
  const TensorView dinput = context.activations.dinput;
  const int64_t content = context.shape.batch.batch_size * context.shape.batch.content_rows;
  const TensorView dwords = Rows(dinput, 0, content);
  if (context.shape.model.projects_clusters()) {
    DropOut(context, dropout, dwords);
    adaptive_.Backward(context, weights, gradients, scale_, dwords);
  } else {
    context.backend.EmbeddingBackward({.dy = dwords,
                                       .ids = adaptive_.TableRows(context),
                                       .scale = scale_,
                                       .dropout = dropout,
                                       .row_ids = context.device.row_ids(),
                                       .dtable = gradients.embedding},
                                      context.stream);
  }
  if (mask_ids_.host.empty()) return;
  context.backend.EmbeddingBackward(
      {.dy = Rows(dinput, content, static_cast<int64_t>(mask_ids_.host.size())),
       .ids = mask_ids_.data(),
       .dropout = dropout,
       .row_ids = context.device.row_ids() + content,
       .dtable = gradients.mask_embedding},
      context.stream);
}

void EmbeddingBlock::Backward(const StepContext& context, const NetworkWeights& weights,
                              const NetworkGradients& gradients) const {
  const TensorView dinput = context.activations.dinput;
  const kernels::Dropout dropout = context.Dropout(kEmbeddingSite);
  if (!context.shape.model.sums_embeddings())
    return BackwardTokens(context, weights, gradients, dropout);
  DropOut(context, dropout, dinput);
  if (context.shape.model.embedding_layer_norm) {
    context.backend.LayerNormBackward({.dy = dinput,
                                       .sum = context.activations.embedding_sum,
                                       .mean = context.activations.embedding_mean,
                                       .rstd = context.activations.embedding_rstd,
                                       .gamma = weights.embedding_norm_gamma,
                                       .dx = dinput,
                                       .dgamma = gradients.embedding_norm_gamma,
                                       .dbeta = gradients.embedding_norm_beta},
                                      context.stream);
  }
  BackwardTokens(context, weights, gradients, {});
  const auto add = [&](const int32_t* ids, TensorView table) {
    if (table.is_null()) return;
    context.backend.EmbeddingBackward({.dy = dinput, .ids = ids, .dtable = table}, context.stream);
  };
  add(context.device.rows().pos, gradients.position_table);
  add(context.device.rows().seg, gradients.segment_table);
}

}  // namespace anyorder
