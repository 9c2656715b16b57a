#include "core/model/adaptive_softmax.h"

#include <algorithm>

#include "core/base/check.h"

namespace anyorder {
namespace {

// losses[rows[i]] += added[i], in the host's memory, where LossHead reads losses.
template <typename T>
void AddLosses(const ClusterRows& rows, const TensorView& added, const TensorView& losses) {
  for (int64_t i = 0; i < rows.num_rows(); ++i)
    losses.data<T>()[rows.rows()[i]] += added.data<T>()[i];
}

}  // namespace

AdaptiveSoftmax::AdaptiveSoftmax(const NetworkShape& shape)
    : clusters_(AdaptiveClusters(shape.model, shape.vocab_size)) {
  if (clusters_.empty()) return;
  head_labels_.resize(static_cast<size_t>(shape.num_targets()));
  rows_.assign(clusters_.size(), ClusterRows(shape.num_targets()));
}

void AdaptiveSoftmax::SplitReadout(const Batch& batch) {
  for (ClusterRows& rows : rows_)
    rows.Clear();
  for (size_t i = 0; i < head_labels_.size(); ++i) {
    // Labels of entries without weight are not read.
    if (batch.weights[i] == 0) continue;
    const int32_t label = batch.labels[i];
    size_t cluster = 0;
    while (cluster < clusters_.size() && label >= clusters_[cluster].end)
      ++cluster;
    ANYORDER_CHECK(label >= 0 && cluster < clusters_.size())
        << "label " << label << " of " << clusters_.back().end << " words";
    const auto tail = static_cast<int32_t>(cluster);
    head_labels_[i] = cluster == 0 ? label : static_cast<int32_t>(clusters_[0].end) + tail - 1;
    if (cluster == 0) continue;
    rows_[cluster].Add(static_cast<int32_t>(i),
                       label - static_cast<int32_t>(clusters_[cluster].begin),
                       batch.weights[i]);
  }
  for (ClusterRows& rows : rows_)
    rows.Pad();
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

void AdaptiveSoftmax::RunCluster(const StepContext& context,
                                 size_t cluster,
                                 const NetworkWeights& weights,
                                 const NetworkGradients* gradients,
                                 ConstTensorView x,
                                 TensorView dx) {
  const ClusterRows& rows = rows_[cluster];
  if (rows.num_rows() == 0) return;
  const Activations& a = context.activations;
  const TensorView gathered = Rows(a.cluster_rows, 0, rows.num_padded());
  const TensorView dgathered = Rows(a.dcluster_rows, 0, rows.num_padded());
  const TensorView losses = a.cluster_losses.Slice(0, {rows.num_padded()});
  context.backend.GatherRows(
      {.x = x, .rows = rows.rows(), .num_rows = rows.num_padded(), .y = gathered}, context.stream);
  RunSoftmax(context,
             {.weights = weights.clusters[cluster],
              .gradients = gradients == nullptr ? nullptr : &gradients->clusters[cluster],
              .x = gathered,
              .dx = dgathered,
              .labels = rows.words(),
              .row_weights = rows.weights(),
              .losses = losses});
  if (losses.dtype() == DType::kFloat64) {
    AddLosses<double>(rows, losses, a.losses);
  } else {
    AddLosses<float>(rows, losses, a.losses);
  }
  if (gradients == nullptr) return;
  context.backend.GatherRows({.x = dgathered,
                              .rows = rows.rows(),
                              .num_rows = rows.num_rows(),
                              .scatter_add = true,
                              .y = dx},
                             context.stream);
}

void AdaptiveSoftmax::Run(const StepContext& context,
                          const NetworkWeights& weights,
                          const NetworkGradients* gradients,
                          ConstTensorView x,
                          TensorView dx) {
  SplitReadout(context.batch());
  RunSoftmax(context,
             {.weights = weights.clusters[0],
              .gradients = gradients == nullptr ? nullptr : gradients->clusters.data(),
              .x = x,
              .dx = dx,
              .labels = head_labels_.data(),
              .row_weights = context.batch().weights.data(),
              .losses = context.activations.losses});
  for (size_t cluster = 1; cluster < clusters_.size(); ++cluster)
    RunCluster(context, cluster, weights, gradients, x, dx);
}

}  // namespace anyorder
