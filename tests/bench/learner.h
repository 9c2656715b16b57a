// Training in one process: the product's network, backend and optimizer, without files, other ranks
// or checkpoints.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/network/tensors/memory_ring.h"
#include "core/network/transformer.h"
#include "core/objective/batch.h"
#include "core/optim/optimizer_config.h"
#include "dist/communicator.h"
#include "dist/sharded_optimizer.h"
#include "kernels/backend.h"

namespace anyorder::bench {

// A network of one microbatch shape, and the recurrence memory of that microbatch's lanes.
class MemoryRunner {
 public:
  static absl::StatusOr<MemoryRunner> Create(const ModelConfig& model, int64_t vocab_size,
                                             const BatchShape& shape, kernels::Backend& backend,
                                             const Retention& retention = {});

  // Runs `batch` on the memory that the last call left, with gradients where `gradients` is not
  // null, and then with dropout by `seed`. Batches come in the order of their steps: the first has
  // step 0, or its memory keys are visible although nothing is in them.
  StepResult Run(const Batch& batch, ConstTensorView weights, TensorView gradients = {},
                 uint64_t seed = 0);
  // Of each readout entry of the last Run.
  const std::vector<float>& losses() const { return transformer_->readout_losses(); }
  const Transformer& transformer() const { return *transformer_; }

 private:
  MemoryRunner(std::unique_ptr<Transformer> transformer, MemoryRing memory)
      : transformer_(std::move(transformer)), memory_(std::move(memory)) {}

  std::unique_ptr<Transformer> transformer_;
  MemoryRing memory_;
};

// Weights of the model's dtype, and the product's optimizer as the only rank has it, in device
// memory.
class Learner {
 public:
  // `seed` draws the initial weights. ResourceExhausted if the device has too little memory.
  static absl::StatusOr<std::unique_ptr<Learner>> Create(
      const ModelConfig& model, int64_t vocab_size, const BatchShape& shape, uint64_t seed,
      const OptimizerConfig& optimizer, kernels::Backend& backend, const Retention& retention = {});

  // One update; the mean loss before it. Returns when all is done.
  double Step(const Batch& batch, double learning_rate);
  // Steps that were not skipped.
  int64_t updates() const { return updates_; }
  ConstTensorView weights() const { return weights_->whole(); }
  const Transformer& transformer() const { return runner_.transformer(); }

 private:
  Learner(MemoryRunner runner, kernels::Backend& backend);
  absl::Status Allocate(DType dtype, TensorView* view);

  kernels::Backend& backend_;
  MemoryRunner runner_;
  const std::unique_ptr<dist::Communicator> communicator_;
  std::unique_ptr<dist::DeviceTransport> transport_;
  std::unique_ptr<dist::ShardedOptimizer> optimizer_;
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
  std::unique_ptr<dist::WeightWindows> weights_;
  TensorView gradients_;
  uint64_t step_ = 0;
  int64_t updates_ = 0;
};

}  // namespace anyorder::bench
