#include "core/network/layers/adaptive_softmax.h"

#include "core/base/check.h"

namespace anyorder {
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
    size_t cluster = 0;
    while (cluster < clusters_.size() && label >= clusters_[cluster].end) ++cluster;
    ANYORDER_CHECK(label >= 0 && cluster < clusters_.size())
        << "label " << label << " of " << clusters_.back().end << " words";
    const auto tail = static_cast<int32_t>(cluster);
    head_labels_.host[i] = cluster == 0 ? label : static_cast<int32_t>(clusters_[0].end) + tail - 1;
    if (cluster == 0) continue;
    rows_[cluster].Add(static_cast<int32_t>(i),
                       label - static_cast<int32_t>(clusters_[cluster].begin), batch.weights[i]);
  }
  for (ClusterRows& rows : rows_) rows.Finish();
  head_labels_.Set();
}

void AdaptiveSoftmax::RunSoftmax(const StepContext& context, const Job& job) {
  kernels::Backend& backend = context.backend;
  const ConstTensorView projection = job.weights.output_projection;
  const int64_t rows = job.x.dim(0);
  const int64_t dim = job.weights.table.dim(1);
  kernels::LinearCrossEntropyArgs args;
  args.x = job.x;
  args.dx = job.dx;
  if (!projection.is_null()) {
    const TensorView narrow = context.activations.cluster_narrow.Slice(0, {rows, dim});
    backend.Gemm({.a = job.x, .b = projection, .c = narrow}, context.stream);
    args.x = narrow;
    args.dx = context.activations.dcluster_narrow.Slice(0, {rows, dim});
  }
  args.weight = job.weights.table;
  args.bias = job.weights.bias;
  args.labels = job.labels;
  args.row_weights = job.row_weights;
  args.loss = job.losses;
  args.workspace = context.activations.workspace;
  if (job.gradients == nullptr) {
    args.dx = TensorView();
  } else {
    args.dweight = job.gradients->table;
    args.dbias = job.gradients->bias;
  }
  backend.LinearCrossEntropy(args, context.stream);
  if (job.gradients == nullptr || projection.is_null()) return;
  backend.Gemm({.a = job.x,
                .b = args.dx,
                .transpose_a = true,
                .beta = 1.0f,
                .c = job.gradients->output_projection},
               context.stream);
  backend.Gemm({.a = args.dx, .b = projection, .transpose_b = true, .c = job.dx}, context.stream);
}

void AdaptiveSoftmax::RunCluster(const StepContext& context, size_t cluster,
                                 const NetworkWeights& weights, const NetworkGradients* gradients,
                                 ConstTensorView x, TensorView dx) const {
  const ClusterRows& rows = rows_[cluster];
  if (rows.num_rows() == 0) return;
  const Activations& a = context.activations;
  const TensorView gathered = Rows(a.cluster_rows, 0, rows.num_padded());
  const TensorView dgathered = Rows(a.dcluster_rows, 0, rows.num_padded());
  const TensorView losses = a.cluster_losses.Slice(0, {rows.num_padded()});
  context.backend.GatherRows(
      {.x = x, .rows = rows.rows(), .num_rows = rows.num_padded(), .y = gathered}, context.stream);
  RunSoftmax(context, {.weights = weights.clusters[cluster],
                       .gradients = gradients == nullptr ? nullptr : &gradients->clusters[cluster],
                       .x = gathered,
                       .dx = dgathered,
                       .labels = rows.words(),
                       .row_weights = rows.weights(),
                       .losses = losses});
  context.backend.GatherRows({.x = losses.Reshape({losses.num_elements(), 1}),
                              .rows = rows.rows(),
                              .num_rows = rows.num_rows(),
                              .scatter_add = true,
                              .y = a.losses.Reshape({a.losses.num_elements(), 1})},
                             context.stream);
  if (gradients == nullptr) return;
  context.backend.GatherRows({.x = dgathered,
                              .rows = rows.rows(),
                              .num_rows = rows.num_rows(),
                              .scatter_add = true,
                              .y = dx},
                             context.stream);
}

void AdaptiveSoftmax::Run(const StepContext& context, const NetworkWeights& weights,
                          const NetworkGradients* gradients, ConstTensorView x,
                          TensorView dx) const {
  RunSoftmax(context, {.weights = weights.clusters[0],
                       .gradients = gradients == nullptr ? nullptr : gradients->clusters.data(),
                       .x = x,
                       .dx = dx,
                       .labels = head_labels_.data(),
                       .row_weights = context.device.weights(),
                       .losses = context.activations.losses});
  for (size_t cluster = 1; cluster < clusters_.size(); ++cluster)
    RunCluster(context, cluster, weights, gradients, x, dx);
}

}  // namespace anyorder
