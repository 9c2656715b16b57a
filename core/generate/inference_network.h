// The product's network for one shape of rows, forward only: the parts that training runs, with the
// same kernels.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "core/generate/adaptive_logits.h"
#include "core/network/layers/attention_tables.h"
#include "core/network/layers/embedding_block.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/activations.h"
#include "core/network/tensors/graph_recorder.h"
#include "core/network/tensors/key_cache.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/network_shape.h"
#include "kernels/backend.h"

namespace anyorder {

class InferenceNetwork {
 public:
  // InvalidArgument if the backend does not compute in the model's dtype; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<InferenceNetwork>> Create(const NetworkShape& shape,
                                                                  kernels::Backend& backend);

  // Rows of `batch`, which is of the network's shape, with the weights of the flat space [layout]
  // in the model's dtype. `cache` is null unless shape.batch.cached_keys is set.
  void Run(const Batch& batch, ConstTensorView weights, KeyCache* cache);
  // Logits of the readout's rows of the last Run, which was of `batch`: [B * targets, V] G, into
  // `logits`, the host's memory. Of an adaptive softmax: log-probabilities. Waits for them.
  void ReadLogits(const Batch& batch, TensorView logits);

  const NetworkShape& shape() const { return shape_; }
  const Activations& activations() const { return activations_; }

 private:
  InferenceNetwork(const NetworkShape& shape, kernels::Backend& backend);
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
  DeviceInputs inputs_;
  DeviceBatch device_;
  EmbeddingBlock embedding_;
  AttentionTables tables_;
  Activations activations_;
  AdaptiveLogits adaptive_;
  NetworkWeights weights_;
  const NetworkGradients no_gradients_;
  HeadRows readout_;  // [B * targets]
  // Logits on the device, where its memory is not the host's; but of an adaptive softmax.
  std::unique_ptr<kernels::Buffer> logits_;
  GraphRecorder graphs_;
};

}  // namespace anyorder
