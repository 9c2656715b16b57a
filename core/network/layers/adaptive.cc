#include "core/network/layers/adaptive.h"

#include "core/base/check.h"
#include "core/network/layers/operations.h"

namespace anyorder {

namespace {

// Of the word that is somebody's `what`.
size_t ClusterOf(const std::vector<AdaptiveCluster>& clusters, int32_t word, const char* what) {
  size_t cluster = 0;
  while (cluster < clusters.size() && word >= clusters[cluster].end) ++cluster;
  ANYORDER_CHECK(word >= 0 && cluster < clusters.size())
      << what << " " << word << " of " << clusters.back().end << " words";
  return cluster;
}

// The rows in their cluster's own size.
TensorView LookUp(const StepContext& context, const ClusterRows& rows, ConstTensorView table,
                  float scale) {
  const TensorView found =
      context.activations.cluster_narrow.Slice(0, {rows.num_padded(), table.dim(1)});
  context.backend.EmbeddingForward(
      {.table = table, .ids = rows.words(), .scale = scale, .y = found}, context.stream);
  return found;
}

// The softmax over the head, or within a cluster. args: x [rows, d], labels, weights, losses, dx.
void RunSoftmax(const StepContext& context, size_t cluster, kernels::LinearCrossEntropyArgs args) {
  const Activations& a = context.activations;
  const ClusterTensors<ConstTensorView>& weights = context.weights.clusters[cluster];
  const ConstTensorView projection = weights.output_projection;
  const ConstTensorView x = args.x;
  const TensorView dx = args.dx;
  args.weight = weights.table;
  args.bias = weights.bias;
  if (!projection.is_null()) {
    const Shape shape{x.dim(0), weights.table.dim(1)};
    const TensorView narrow = a.cluster_narrow.Slice(0, shape);
    context.backend.Gemm({.a = x, .b = projection, .c = narrow}, context.stream);
    args.x = narrow;
    args.dx = a.dcluster_narrow.Slice(0, shape);
  }
  if (!context.learns()) return SoftmaxLosses(context, args);
  const ClusterTensors<TensorView>& gradients = context.gradients.clusters[cluster];
  args.dweight = gradients.table;
  args.dbias = gradients.bias;
  SoftmaxLosses(context, args);
  if (projection.is_null()) return;
  context.backend.Gemm(
      {.a = x, .b = args.dx, .transpose_a = true, .beta = 1.0f, .c = gradients.output_projection},
      context.stream);
  context.backend.Gemm({.a = args.dx, .b = projection, .transpose_b = true, .c = dx},
                       context.stream);
}

}  // namespace

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

void AdaptiveEmbedding::SetInputs(const Batch& batch) {
  if (clusters_.empty()) return;
  const auto head = static_cast<int32_t>(clusters_[0].end);
  const auto num_tails = static_cast<int32_t>(clusters_.size()) - 1;
  for (size_t i = 0; i < table_rows_.host.size(); ++i) {
    const int32_t token = batch.tokens[i];
    table_rows_.host[i] = token < head ? token : token + num_tails;
  }
  if (rows_.empty()) return table_rows_.Set();
  for (ClusterRows& rows : rows_) rows.Clear();
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const size_t cluster = ClusterOf(clusters_, batch.tokens[i], "token");
    const auto first = static_cast<int32_t>(clusters_[cluster].begin);
    rows_[cluster].Add(static_cast<int32_t>(i), batch.tokens[i] - first, 1.0f);
  }
  for (ClusterRows& rows : rows_) rows.Finish();
}

void AdaptiveEmbedding::Forward(const StepContext& context, float scale, TensorView y) const {
  context.backend.FillZero(y, context.stream);
  for (size_t cluster = 0; cluster < rows_.size(); ++cluster) {
    const ClusterRows& rows = rows_[cluster];
    if (rows.num_rows() == 0) continue;
    const ClusterTensors<ConstTensorView>& tensors = context.weights.clusters[cluster];
    const TensorView projected = Rows(context.activations.cluster_rows, 0, rows.num_padded());
    Dense(context, LookUp(context, rows, tensors.table, scale), tensors.input_projection, {},
          projected);
    ScatterRows(context, projected, rows.rows(), rows.num_rows(), y);
  }
}

void AdaptiveEmbedding::Backward(const StepContext& context, float scale,
                                 ConstTensorView dy) const {
  for (size_t cluster = 0; cluster < rows_.size(); ++cluster) {
    const ClusterRows& rows = rows_[cluster];
    if (rows.num_rows() == 0) continue;
    const ClusterTensors<ConstTensorView>& tensors = context.weights.clusters[cluster];
    const ClusterTensors<TensorView>& gradients = context.gradients.clusters[cluster];
    const TensorView dprojected = Rows(context.activations.cluster_rows, 0, rows.num_padded());
    GatherRows(context, dy, rows.rows(), rows.num_rows(), dprojected);
    const int64_t spare = rows.num_padded() - rows.num_rows();
    if (spare > 0)
      context.backend.FillZero(Rows(dprojected, rows.num_rows(), spare), context.stream);
    const TensorView found = LookUp(context, rows, tensors.table, scale);
    context.backend.Gemm({.a = dprojected,
                          .b = found,
                          .transpose_a = true,
                          .beta = 1.0f,
                          .c = gradients.input_projection},
                         context.stream);
    const TensorView dfound =
        context.activations.dcluster_narrow.Slice(0, {rows.num_padded(), found.dim(1)});
    context.backend.Gemm({.a = dprojected, .b = tensors.input_projection, .c = dfound},
                         context.stream);
    context.backend.EmbeddingBackward({.dy = Rows(dfound, 0, rows.num_rows()),
                                       .ids = rows.words(),
                                       .scale = scale,
                                       .dtable = gradients.table},
                                      context.stream);
  }
}

AdaptiveSoftmax::AdaptiveSoftmax(const NetworkShape& shape, DeviceInputs& inputs)
    : clusters_(AdaptiveClusters(shape.model, shape.vocab_size)) {
  if (clusters_.empty()) return;
  head_labels_ = {shape.num_targets(), inputs};
  for (size_t i = 0; i < clusters_.size(); ++i)
    rows_.emplace_back(i == 0 ? 0 : shape.num_targets(), inputs);
}

void AdaptiveSoftmax::SetInputs(const Batch& batch) {
  if (clusters_.empty()) return;
  for (ClusterRows& rows : rows_) rows.Clear();
  for (size_t i = 0; i < head_labels_.host.size(); ++i) {
    // Labels of entries without weight are not read.
    if (batch.weights[i] == 0) continue;
    const int32_t label = batch.labels[i];
    const size_t cluster = ClusterOf(clusters_, label, "label");
    head_labels_.host[i] = label;
    if (cluster == 0) continue;
    head_labels_.host[i] =
        static_cast<int32_t>(clusters_[0].end + static_cast<int64_t>(cluster)) - 1;
    rows_[cluster].Add(static_cast<int32_t>(i),
                       label - static_cast<int32_t>(clusters_[cluster].begin), batch.weights[i]);
  }
  for (ClusterRows& rows : rows_) rows.Finish();
  head_labels_.Set();
}

void AdaptiveSoftmax::RunCluster(const StepContext& context, size_t cluster, ConstTensorView x,
                                 TensorView dx) const {
  const ClusterRows& rows = rows_[cluster];
  if (rows.num_rows() == 0) return;
  const Activations& a = context.activations;
  const TensorView gathered = Rows(a.cluster_rows, 0, rows.num_padded());
  const TensorView dgathered = Rows(a.dcluster_rows, 0, rows.num_padded());
  const TensorView losses = a.cluster_losses.Slice(0, {rows.num_padded()});
  GatherRows(context, x, rows.rows(), rows.num_padded(), gathered);
  RunSoftmax(context, cluster,
             {.x = gathered,
              .labels = rows.words(),
              .row_weights = rows.weights(),
              .loss = losses,
              .dx = dgathered});
  ScatterRows(context, losses.Reshape({losses.num_elements(), 1}), rows.rows(), rows.num_rows(),
              a.losses.Reshape({a.losses.num_elements(), 1}));
  if (context.learns()) ScatterRows(context, dgathered, rows.rows(), rows.num_rows(), dx);
}

void AdaptiveSoftmax::Run(const StepContext& context, ConstTensorView x, TensorView dx) const {
  RunSoftmax(context, 0,
             {.x = x,
              .labels = head_labels_.data(),
              .row_weights = context.device.weights.data(),
              .loss = context.activations.losses,
              .dx = dx});
  for (size_t cluster = 1; cluster < clusters_.size(); ++cluster)
    RunCluster(context, cluster, x, dx);
}

}  // namespace anyorder
