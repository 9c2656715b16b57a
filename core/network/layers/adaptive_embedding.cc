#include "core/network/layers/adaptive_embedding.h"

#include "core/base/check.h"

namespace anyorder {

AdaptiveEmbedding::AdaptiveEmbedding(const NetworkShape& shape, DeviceInputs& inputs)
    : clusters_(AdaptiveClusters(shape.model, shape.vocab_size)) {
  if (clusters_.empty()) return;
  const int64_t rows = shape.batch.batch_size * shape.batch.content_rows;
  if (shape.model.projects_clusters()) {
    for (size_t i = 0; i < clusters_.size(); ++i) rows_.emplace_back(rows, inputs);
  } else {
    table_rows_ = {rows, inputs};
  }
}

const int32_t* AdaptiveEmbedding::TableRows(const StepContext& context) const {
  return clusters_.empty() ? context.device.tokens() : table_rows_.data();
}

void AdaptiveEmbedding::SetInputs(const Batch& batch) {
  if (clusters_.empty()) return;
  if (!rows_.empty()) return SplitTokens(batch);
  const auto head = static_cast<int32_t>(clusters_[0].end);
  const auto num_tails = static_cast<int32_t>(clusters_.size()) - 1;
  for (size_t i = 0; i < table_rows_.host.size(); ++i) {
    const int32_t token = batch.tokens[i];
    table_rows_.host[i] = token < head ? token : token + num_tails;
  }
  table_rows_.Set();
}

void AdaptiveEmbedding::SplitTokens(const Batch& batch) {
  for (ClusterRows& rows : rows_) rows.Clear();
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const int32_t token = batch.tokens[i];
    size_t cluster = 0;
    while (cluster < clusters_.size() && token >= clusters_[cluster].end) ++cluster;
    ANYORDER_CHECK(token >= 0 && cluster < clusters_.size())
        << "token " << token << " of " << clusters_.back().end << " words";
    rows_[cluster].Add(static_cast<int32_t>(i),
                       token - static_cast<int32_t>(clusters_[cluster].begin), 1.0f);
  }
  for (ClusterRows& rows : rows_) rows.Finish();
}

TensorView AdaptiveEmbedding::LookUp(const StepContext& context, const ClusterRows& rows,
                                     ConstTensorView table, float scale) {
  const TensorView found =
      context.activations.cluster_narrow.Slice(0, {rows.num_padded(), table.dim(1)});
  context.backend.EmbeddingForward(
      {.table = table, .ids = rows.words(), .scale = scale, .y = found}, context.stream);
  return found;
}

void AdaptiveEmbedding::Forward(const StepContext& context, const NetworkWeights& weights,
                                float scale, TensorView y) const {
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

void AdaptiveEmbedding::Backward(const StepContext& context, const NetworkWeights& weights,
                                 const NetworkGradients& gradients, float scale,
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
