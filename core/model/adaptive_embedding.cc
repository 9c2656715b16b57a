#include "core/model/adaptive_embedding.h"

#include "core/base/check.h"

namespace anyorder {

AdaptiveEmbedding::AdaptiveEmbedding(const NetworkShape& shape)
    : clusters_(AdaptiveClusters(shape.model, shape.vocab_size)) {
  if (clusters_.empty()) return;
  const int64_t rows = shape.batch.batch_size * shape.batch.content_rows;
  if (shape.model.projects_clusters()) {
    rows_.assign(clusters_.size(), ClusterRows(rows));
  } else {
    table_rows_.resize(static_cast<size_t>(rows));
  }
}

const int32_t* AdaptiveEmbedding::TableRows(const Batch& batch) {
  if (clusters_.empty()) return batch.tokens.data();
  const auto head = static_cast<int32_t>(clusters_[0].end);
  const auto num_tails = static_cast<int32_t>(clusters_.size()) - 1;
  for (size_t i = 0; i < table_rows_.size(); ++i) {
    const int32_t token = batch.tokens[i];
    table_rows_[i] = token < head ? token : token + num_tails;
  }
  return table_rows_.data();
}

void AdaptiveEmbedding::SplitTokens(const Batch& batch) {
  for (ClusterRows& rows : rows_)
    rows.Clear();
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const int32_t token = batch.tokens[i];
    size_t cluster = 0;
    while (cluster < clusters_.size() && token >= clusters_[cluster].end)
      ++cluster;
    ANYORDER_CHECK(token >= 0 && cluster < clusters_.size())
        << "token " << token << " of " << clusters_.back().end << " words";
    rows_[cluster].Add(
        static_cast<int32_t>(i), token - static_cast<int32_t>(clusters_[cluster].begin), 1.0f);
  }
  for (ClusterRows& rows : rows_)
    rows.Pad();
}

TensorView AdaptiveEmbedding::LookUp(const StepContext& context,
                                     const ClusterRows& rows,
                                     ConstTensorView table,
                                     float scale) {
  const TensorView found =
      context.activations.cluster_narrow.Slice(0, {rows.num_padded(), table.dim(1)});
  context.backend.EmbeddingForward(
      {.table = table, .ids = rows.words(), .scale = scale, .y = found}, context.stream);
  return found;
}

void AdaptiveEmbedding::Forward(const StepContext& context,
                                const NetworkWeights& weights,
                                float scale,
                                TensorView y) {
  SplitTokens(context.batch());
  context.backend.FillZero(y, context.stream);
  for (size_t cluster = 0; cluster < rows_.size(); ++cluster) {
    const ClusterRows& rows = rows_[cluster];
    if (rows.num_rows() == 0) continue;
    const ClusterTensors<ConstTensorView>& tensors = weights.clusters[cluster];
    const TensorView projected = Rows(context.activations.cluster_rows, 0, rows.num_padded());
    context.backend.Gemm({.a = LookUp(context, rows, tensors.table, scale),
                          .b = tensors.input_projection,
                          .transpose_b = true,
                          .c = projected},
                         context.stream);
    context.backend.GatherRows({.x = projected,
                                .rows = rows.rows(),
                                .num_rows = rows.num_rows(),
                                .scatter_add = true,
                                .y = y},
                               context.stream);
  }
}

void AdaptiveEmbedding::Backward(const StepContext& context,
                                 const NetworkWeights& weights,
                                 const NetworkGradients& gradients,
                                 float scale,
                                 ConstTensorView dy) const {
  for (size_t cluster = 0; cluster < rows_.size(); ++cluster) {
    const ClusterRows& rows = rows_[cluster];
    if (rows.num_rows() == 0) continue;
    const ClusterTensors<ConstTensorView>& tensors = weights.clusters[cluster];
    const TensorView dprojected = Rows(context.activations.cluster_rows, 0, rows.num_padded());
    context.backend.GatherRows(
        {.x = dy, .rows = rows.rows(), .num_rows = rows.num_rows(), .y = dprojected},
        context.stream);
    const int64_t spare = rows.num_padded() - rows.num_rows();
    if (spare > 0)
      context.backend.FillZero(Rows(dprojected, rows.num_rows(), spare), context.stream);
    const TensorView found = LookUp(context, rows, tensors.table, scale);
    context.backend.Gemm({.a = dprojected,
                          .b = found,
                          .transpose_a = true,
                          .beta = 1.0f,
                          .c = gradients.clusters[cluster].input_projection},
                         context.stream);
    const TensorView dfound =
        context.activations.dcluster_narrow.Slice(0, {rows.num_padded(), found.dim(1)});
    context.backend.Gemm({.a = dprojected, .b = tensors.input_projection, .c = dfound},
                         context.stream);
    context.backend.EmbeddingBackward({.dy = Rows(dfound, 0, rows.num_rows()),
                                       .ids = rows.words(),
                                       .scale = scale,
                                       .dtable = gradients.clusters[cluster].table},
                                      context.stream);
  }
}

}  // namespace anyorder
