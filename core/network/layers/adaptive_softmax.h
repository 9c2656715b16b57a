// The loss of an adaptive softmax (adaptive_clusters.h). All readout rows are multiplied with the
// head's words and clusters, and a row whose label is rare with its own cluster besides; no row is
// multiplied with the whole vocabulary. Losses stay in the order of the readout.

#pragma once

#include <cstdint>
#include <vector>

#include "core/config/adaptive_clusters.h"
#include "core/network/tensors/cluster_rows.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class AdaptiveSoftmax {
 public:
  // Does nothing for a model without one.
  AdaptiveSoftmax(const NetworkShape& shape, DeviceInputs& inputs);

  // Labels of the head, and who goes into which cluster.
  void SetInputs(const Batch& batch);
  // x [targets, d] T. Writes activations.losses; with gradients dx (d of the weighted sum,
  // overwritten), and adds to tables, projections and biases.
  void Run(const StepContext& context, const NetworkWeights& weights,
           const NetworkGradients* gradients, ConstTensorView x, TensorView dx) const;

 private:
  // One softmax: over the head, or within a cluster.
  struct Job {
    const ClusterTensors<ConstTensorView>& weights;
    const ClusterTensors<TensorView>* gradients;  // null: none
    ConstTensorView x;                            // [rows, d]
    TensorView dx;                                // [rows, d]
    const int32_t* labels;
    const float* row_weights;
    TensorView losses;  // [rows]
  };
  static void RunSoftmax(const StepContext& context, const Job& job);
  void RunCluster(const StepContext& context, size_t cluster, const NetworkWeights& weights,
                  const NetworkGradients* gradients, ConstTensorView x, TensorView dx) const;

  std::vector<AdaptiveCluster> clusters_;
  ComputedArray<int32_t> head_labels_;  // [targets] words of the head, or its size + cluster - 1
  std::vector<ClusterRows> rows_;       // of each cluster; the head's stay empty
};

}  // namespace anyorder
