// Token embeddings of an adaptive softmax's tables (adaptive_clusters.h; Baevski & Auli 2019).
// Where all clusters have model_dim dimensions their tables are one, with the clusters' vectors
// between the head's words and the others: only ids change. Where they have not, each cluster's
// rows are looked up in its own size and projected.

#pragma once

#include <cstdint>
#include <vector>

#include "core/config/adaptive_clusters.h"
#include "core/network/tensors/cluster_rows.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class AdaptiveEmbedding {
 public:
  // Does nothing for a model without an adaptive softmax.
  AdaptiveEmbedding(const NetworkShape& shape, DeviceInputs& inputs);

  // Sorts the batch's tokens.
  void SetInputs(const Batch& batch);
  // The tokens as rows of NetworkTensors::embedding: themselves in most models.
  const int32_t* TableRows(const StepContext& context) const;

  // With projections: y [B * S, d] T = scale * projection * table[token], overwritten.
  void Forward(const StepContext& context, const NetworkWeights& weights, float scale,
               TensorView y) const;
  // Adds the gradient of y to tables and input projections, rows in order. REQUIRES: Forward of the
  // same step.
  void Backward(const StepContext& context, const NetworkWeights& weights,
                const NetworkGradients& gradients, float scale, ConstTensorView dy) const;

 private:
  void SplitTokens(const Batch& batch);
  // The cluster's rows in their own size.
  static TensorView LookUp(const StepContext& context, const ClusterRows& rows,
                           ConstTensorView table, float scale);

  std::vector<AdaptiveCluster> clusters_;
  ComputedArray<int32_t> table_rows_;  // [B * S] without projections
  std::vector<ClusterRows> rows_;      // of each cluster, with projections
};

}  // namespace anyorder
