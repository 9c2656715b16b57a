// Everything a run is at one moment besides its step number: weights, Adam moments, the average of
// the weights (optimizer.ema_decay), recurrence memory. This rank holds the compute weights, whole
// or its slices, its range of master weights, moments and average, and the memory of its own lanes.
//
// A checkpoint holds the same as global tensors "master", "adam_m", "adam_v", with an average "ema"
// [parameters], and "memory" [lanes, L, M, d], so that any number of ranks can load what any other
// number saved.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/client.h"
#include "ckpt/reader.h"
#include "core/base/tensor.h"
#include "core/network/tensors/memory_ring.h"
#include "core/network/tensors/parameters.h"
#include "core/network/tensors/step.h"
#include "core/train/run/run_config.h"
#include "dist/communicator.h"
#include "dist/parameter_partition.h"
#include "dist/sharded_optimizer.h"
#include "dist/weight_windows.h"
#include "kernels/backend.h"

namespace anyorder {

class TrainingState {
 public:
  // Allocates; nothing is initialised but memory, which is zero. `leaves`: this rank's
  // microbatches, in increasing order. `transport` moves the weights.
  static absl::StatusOr<std::unique_ptr<TrainingState>> Create(const RunConfig& config,
                                                               const ParameterLayout& layout,
                                                               const std::vector<int64_t>& leaves,
                                                               dist::Communicator& communicator,
                                                               kernels::Backend& backend,
                                                               dist::DeviceTransport& transport);

  // Called with the elements of each piece that is done; an error ends the work.
  using PieceDone = std::function<absl::Status(int64_t elements)>;

  // This rank's part of the initial state, without memory, which Create has left zero; the average
  // begins as the weights. Errors: those of `done`.
  absl::Status Initialize(const PieceDone& done = nullptr);
  // This rank's part of `checkpoint`, every byte checked; those of all ranks are the whole of it.
  // Imported weights (step 0) come without memory, which becomes zero. Where it has no average, one
  // begins with its weights; where the run keeps none, the checkpoint's is not read.
  // FailedPrecondition if its tensors have other shapes; DataLoss, after which another checkpoint
  // may be loaded; those of `done`.
  absl::Status Load(const ckpt::Checkpoint& checkpoint, const PieceDone& done = nullptr);
  // Collective, after either: the compute weights become those of all ranks' master weights.
  void GatherWeights();
  // Collective. Calls `use` while weights() are the average instead.
  void WithAverage(absl::FunctionRef<void()> use);

  // What this rank saves; points into this object. Memory is named in pieces, in a checkpoint's
  // order wherever its rings stand. They keep their values until AdvanceMemory and another step:
  // the step between writes the rings' free slots.
  std::vector<ckpt::TensorRange> Ranges();

  dist::ShardedOptimizer& optimizer() { return *optimizer_; }
  dist::WeightWindows& weights() { return *weights_; }
  // What is not trained [layout.num_frozen_elements()], in the activation dtype: no part of the
  // state, for LoadFrozenWeights to fill. Null without adapters.
  dist::WeightWindows* frozen() { return frozen_.get(); }
  // Both for the network, with what makes them come in time.
  void BindWeights(StepArgs& args);
  // The memory of microbatch `index` of this rank; null without memory.
  RingView memory(int64_t index) const {
    return memory_.View(index * config_.train.micro_batch_size, config_.train.micro_batch_size);
  }
  // What the step wrote becomes what the next one reads, also after a step that trained nothing:
  // the text goes on.
  void AdvanceMemory() { memory_.Advance(); }
  // This rank's lanes (rows of the global batch), by their global numbers, in order.
  const std::vector<int64_t>& lanes() const { return lanes_; }
  // Whether all states that the next step of lanes()[index] will read are finite.
  bool MemoryIsFinite(int64_t index) const;
  // Makes it zeros, as at the start of the run.
  void EmptyMemory(int64_t index) { memory_.Clear(index); }

 private:
  TrainingState(const RunConfig& config, const ParameterLayout& layout,
                const std::vector<int64_t>& leaves, kernels::Backend& backend);
  void AddMemoryRanges(std::vector<ckpt::TensorRange>& ranges);
  int64_t lane_elements() const {
    return config_.model.num_layers * config_.model.mem_len * config_.model.model_dim;
  }
  const RunConfig& config_;
  const ParameterLayout& layout_;
  std::vector<int64_t> lanes_;
  kernels::Backend& backend_;
  std::unique_ptr<dist::ShardedOptimizer> optimizer_;
  std::unique_ptr<dist::WeightWindows> weights_;
  std::unique_ptr<dist::WeightWindows> frozen_;  // null without adapters
  MemoryRing memory_;
};

// Which parameters decay, and at what part of the learning rate they are updated.
std::vector<dist::DecaySegment> DecaySegmentsOf(const ParameterLayout& layout,
                                                const OptimizerConfig& optimizer);

// Elements [begin, end) of a tensor, at `data`, which the function fills.
using FillPiece = std::function<absl::Status(int64_t begin, int64_t end, void* data)>;
// Overwrites a large tensor with what `fill` makes of pieces of bounded size, in order; where
// memory is the host's, in place. With `keeps`, `data` holds the elements as they are. The first
// error ends it.
absl::Status WriteInPieces(TensorView target, kernels::Backend& backend, const FillPiece& fill,
                           bool keeps = false);

}  // namespace anyorder
