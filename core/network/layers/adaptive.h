// Both ends of a network with an adaptive softmax (adaptive_clusters.h).

#pragma once

#include <cstdint>
#include <vector>

#include "core/config/adaptive_clusters.h"
#include "core/network/tensors/cluster_rows.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// Token embeddings by its tables (Baevski & Auli 2019). Where all clusters have model_dim
// dimensions their tables are one, with the clusters' vectors between the head's words and the
// others: only ids change. Where they have not, each cluster's rows are looked up in its own size
// and projected. Does nothing for a model without an adaptive softmax, like the other class.
class AdaptiveEmbedding {
 public:
  AdaptiveEmbedding(const NetworkShape& shape, DeviceInputs& inputs);

  // Sorts the batch's tokens.
  void SetInputs(const Batch& batch);
  // The tokens as rows of NetworkTensors::embedding: themselves in most models.
  const int32_t* TableRows(const StepContext& context) const {
    return clusters_.empty() ? context.device.tokens.data() : table_rows_.data();
  }

  // With projections: y [B * S, d] T = scale * projection * table[token], overwritten.
  void Forward(const StepContext& context, float scale, TensorView y) const;
  // Adds the gradient of y to tables and input projections, rows in order. REQUIRES: Forward of the
  // same step.
  void Backward(const StepContext& context, float scale, ConstTensorView dy) const;

 private:
  std::vector<AdaptiveCluster> clusters_;
  ComputedArray<int32_t> table_rows_;  // [B * S] without projections
  std::vector<ClusterRows> rows_;      // of each cluster, with projections
};

// The loss. All readout rows are multiplied with the head's words and clusters, and a row whose
// label is rare with its own cluster besides; no row is multiplied with the whole vocabulary.
// Losses stay in the order of the readout.
class AdaptiveSoftmax {
 public:
  AdaptiveSoftmax(const NetworkShape& shape, DeviceInputs& inputs);

  // Labels of the head, and who goes into which cluster.
  void SetInputs(const Batch& batch);
  // x [targets, d] T. Writes activations.losses; with gradients dx (d of the weighted sum,
  // overwritten), and adds to tables, projections and biases.
  void Run(const StepContext& context, ConstTensorView x, TensorView dx) const;

 private:
  void RunCluster(const StepContext& context, size_t cluster, ConstTensorView x,
                  TensorView dx) const;

  std::vector<AdaptiveCluster> clusters_;
  ComputedArray<int32_t> head_labels_;  // [targets] words of the head, or its size + cluster - 1
  std::vector<ClusterRows> rows_;       // of each cluster; the head's stay empty
};

}  // namespace anyorder
