// The product's network for one shape of rows, forward only: the parts that training runs, with the
// same kernels.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/config/adaptive_clusters.h"
#include "core/network/layers/attention_tables.h"
#include "core/network/layers/embedding_block.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/activations.h"
#include "core/network/tensors/graph_recorder.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/network_shape.h"
#include "core/network/tensors/step_context.h"
#include "kernels/backend.h"

namespace anyorder {

// Log-probabilities of all words under an adaptive softmax (core/config/adaptive_clusters.h).
// Training multiplies a row with its label's cluster alone; to choose the next word takes
// all of them.
class AdaptiveLogits {
 public:
  // For at most `rows` rows at once. Nothing for a model without an adaptive softmax.
  absl::Status Allocate(const NetworkShape& shape, int64_t rows, kernels::Backend& backend);
  // x [n, d] T; writes log p of each word to logits [n, V] G, in the host's memory. Waits for it.
  void Run(const StepContext& context, ConstTensorView x, TensorView logits);

 private:
  std::vector<AdaptiveCluster> clusters_;
  std::unique_ptr<kernels::Buffer> storage_;
  std::vector<TensorView> scores_;  // of each cluster, [rows, words] G; the head's are followed by
                                    // those of the other clusters
  std::vector<HostCopy> fetched_;   // `scores_` on the host
};

class InferenceNetwork {
 public:
  // Has room for the logits of `logit_rows` rows of the readout at once, by default of all.
  // InvalidArgument if the backend does not compute in the model's dtype; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<InferenceNetwork>> Create(
      const NetworkShape& shape, kernels::Backend& backend,
      std::optional<int64_t> logit_rows = std::nullopt);

  // Rows of `batch`, which is of the network's shape, with the weights of the flat space [layout]
  // in the model's dtype. `cache` is null unless shape.batch.cached_keys is set.
  void Run(const Batch& batch, ConstTensorView weights, KeyCache* cache);
  // Logits of rows of the readout [B * targets] of the last Run, which was of `batch`: of as many
  // as `logits` [rows, V] G has, from row `first` on, into the host's memory. Of an adaptive
  // softmax: log-probabilities. Waits for them. REQUIRES: no more rows than `logit_rows`.
  void ReadLogits(const Batch& batch, TensorView logits, int64_t first = 0);

  const NetworkShape& shape() const { return shape_; }
  const Activations& activations() const { return activations_; }

 private:
  InferenceNetwork(const NetworkShape& shape, kernels::Backend& backend, int64_t logit_rows);
  absl::Status Allocate();
  StepContext Context(const StepArgs& args, KeyCache* cache) {
    return {shape_, args, activations_, device_, weights_, no_gradients_, backend_, {}, cache};
  }
  void SendInputs(const StepContext& context);
  // Runs `operations`, small ones as a graph (GraphRecorder).
  void Record(const std::vector<int64_t>& choices, absl::FunctionRef<void()> operations);
  std::vector<int64_t> ForwardChoices(const KeyCache* cache) const;

  NetworkShape shape_;
  kernels::Backend& backend_;
  const int64_t logit_rows_;
  DeviceInputs inputs_;
  DeviceBatch device_;
  EmbeddingBlock embedding_;
  AttentionTables tables_;
  Activations activations_;
  AdaptiveLogits adaptive_;
  NetworkWeights weights_;
  const NetworkGradients no_gradients_;
  HeadRows readout_;  // [B * targets]
  // Logits [logit_rows, V] on the device, where its memory is not the host's; but of an adaptive
  // softmax.
  std::unique_ptr<kernels::Buffer> logits_;
  GraphRecorder graphs_;
};

}  // namespace anyorder
