// The network's input. Content rows start as token embeddings, query rows as one learned vector
// (mask_emb), since a query must not know its own token. Learned positions and segments are added
// to both; then come a LayerNorm, if the model has one there (BERT, Devlin et al. 2019), and
// dropout. Positions in pairs (sigma-GPT, Pannatier et al. 2024) are two entries of half the width
// side by side: the row's own and that of the token that it predicts.

#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/check.h"
#include "core/network/layers/adaptive.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// All of `matrix` as rows of the table's width: several entries side by side fill a row of it.
inline TensorView EntriesOf(const TensorView& matrix, int64_t width) {
  return matrix.Reshape({matrix.num_elements() / width, width});
}

class EmbeddingBlock {
 public:
  EmbeddingBlock(const NetworkShape& shape, DeviceInputs& inputs)
      : scale_(shape.model.scale_embedding
                   ? static_cast<float>(std::sqrt(static_cast<double>(shape.model.model_dim)))
                   : 1.0f),
        adaptive_(shape, inputs),
        mask_ids_(shape.batch.batch_size * shape.batch.query_rows, inputs),
        position_pairs_(shape.model.paired_positions() ? 2 * shape.batch.num_rows() : 0, inputs) {}

  void SetInputs(const Batch& batch) {
    adaptive_.SetInputs(batch);
    mask_ids_.Set();
    if (position_pairs_.host.empty()) return;
    ANYORDER_CHECK(batch.shape.next_positions) << "rows do not say which position they predict";
    for (size_t row = 0; row < batch.row_next.size(); ++row) {
      position_pairs_.host[2 * row] = batch.row_pos[row];
      position_pairs_.host[2 * row + 1] = batch.row_next[row];
    }
    position_pairs_.Set();
  }

  // Writes the input of layer 0.
  void Forward(const StepContext& context) const {
    const TensorView input = context.activations.layers[0].input;
    const kernels::Dropout dropout = context.Dropout(kEmbeddingSite);
    if (!context.shape.model.sums_embeddings()) return ForwardTokens(context, dropout, input);
    const bool has_norm = context.shape.model.embedding_layer_norm;
    const NormActivations& kept = context.activations.embedding_norm;
    const TensorView sum = has_norm ? kept.sum : input;
    ForwardTokens(context, {}, sum);
    const auto add = [&](ConstTensorView table, const int32_t* ids) {
      if (table.is_null()) return;
      const TensorView entries = context.activations.branch;
      context.backend.EmbeddingForward(
          {.table = table, .ids = ids, .y = EntriesOf(entries, table.dim(1))}, context.stream);
      context.backend.Add(sum, entries, sum, context.stream);
    };
    add(context.weights.position_table, PositionIds(context));
    add(context.weights.segment_table, context.device.row_seg.data());
    if (has_norm) NormForward(context, {context.weights.embedding_norm, kept}, input);
    DropRows(context, dropout, context.device.row_ids.data(), input);
  }
  // Adds the gradient of layer 0's input (activations.dinput, overwritten) to those of the tables
  // and mask_emb; overwrites the LayerNorm's.
  void Backward(const StepContext& context) const {
    const NetworkGradients& gradients = context.gradients;
    const TensorView dinput = context.activations.dinput;
    const kernels::Dropout dropout = context.Dropout(kEmbeddingSite);
    if (!context.shape.model.sums_embeddings()) return BackwardTokens(context, dropout);
    DropRows(context, dropout, context.device.row_ids.data(), dinput);
    if (context.shape.model.embedding_layer_norm) {
      NormBackward(context, {context.weights.embedding_norm, context.activations.embedding_norm},
                   gradients.embedding_norm, dinput, dinput);
    }
    BackwardTokens(context, {});
    const auto add = [&](const int32_t* ids, TensorView table) {
      if (table.is_null()) return;
      context.backend.EmbeddingBackward(
          {.dy = EntriesOf(dinput, table.dim(1)), .ids = ids, .dtable = table}, context.stream);
    };
    add(PositionIds(context), gradients.position_table);
    add(context.device.row_seg.data(), gradients.segment_table);
  }

 private:
  // Rows of tokens and mask_emb alone, dropped out.
  void ForwardTokens(const StepContext& context, const kernels::Dropout& dropout,
                     TensorView rows) const {
    const int64_t content = context.shape.batch.batch_size * context.shape.batch.content_rows;
    const int32_t* const row_ids = context.device.row_ids.data();
    const TensorView words = Rows(rows, 0, content);
    if (context.shape.model.projects_clusters()) {
      adaptive_.Forward(context, scale_, words);
      DropRows(context, dropout, row_ids, words);
    } else {
      context.backend.EmbeddingForward({.table = context.weights.embedding,
                                        .ids = adaptive_.TableRows(context),
                                        .scale = scale_,
                                        .dropout = dropout,
                                        .row_ids = row_ids,
                                        .y = words},
                                       context.stream);
    }
    if (mask_ids_.host.empty()) return;
    context.backend.EmbeddingForward(
        {.table = context.weights.mask_embedding,
         .ids = mask_ids_.data(),
         .dropout = dropout,
         .row_ids = row_ids + content,
         .y = Rows(rows, content, static_cast<int64_t>(mask_ids_.host.size()))},
        context.stream);
  }
  void BackwardTokens(const StepContext& context, const kernels::Dropout& dropout) const {
    const TensorView dinput = context.activations.dinput;
    const int64_t content = context.shape.batch.batch_size * context.shape.batch.content_rows;
    const int32_t* const row_ids = context.device.row_ids.data();
    const TensorView dwords = Rows(dinput, 0, content);
    if (context.shape.model.projects_clusters()) {
      DropRows(context, dropout, row_ids, dwords);
      adaptive_.Backward(context, scale_, dwords);
    } else if (const TensorView table = context.gradients.embedding; !table.is_null()) {
      context.backend.EmbeddingBackward({.dy = dwords,
                                         .ids = adaptive_.TableRows(context),
                                         .scale = scale_,
                                         .dropout = dropout,
                                         .row_ids = row_ids,
                                         .dtable = table},
                                        context.stream);
    }
    if (mask_ids_.host.empty()) return;
    context.backend.EmbeddingBackward(
        {.dy = Rows(dinput, content, static_cast<int64_t>(mask_ids_.host.size())),
         .ids = mask_ids_.data(),
         .dropout = dropout,
         .row_ids = row_ids + content,
         .dtable = context.gradients.mask_embedding},
        context.stream);
  }
  const int32_t* PositionIds(const StepContext& context) const {
    return position_pairs_.host.empty() ? context.device.row_pos.data() : position_pairs_.data();
  }

  float scale_;  // of token embeddings: sqrt(d) for Transformer-XL
  AdaptiveEmbedding adaptive_;
  ComputedArray<int32_t> mask_ids_;        // [B * Q] zeros: mask_emb is a table with one row
  ComputedArray<int32_t> position_pairs_;  // [N, 2] own, next; empty unless positions are in pairs
};

}  // namespace anyorder
