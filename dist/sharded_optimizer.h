// AdamW with its state cut over the ranks (ZeRO stage 1, Rajbhandari et al. 2020): each rank keeps
// fp32 master weights and both moments of the range it owns, updates them, and the new weights go
// to all who compute with them. With OptimizerConfig::ema_decay it also keeps the average of its
// master weights.
//
// Everything global is computed in an order that does not depend on the number of ranks: the
// gradient norm is the sum of per-block sums of squares, added in an order fixed by their number.
// With a tree-reduced gradient the whole step gives the same bits on any number of ranks.
//
// What the norm decides is decided where the gradient is, by every rank for itself and alike
// (kernels/adamw.h, NormControl), so that a device goes from the gradient to the new weights
// without a word from the host. The host reads what was decided when it wants to know.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/tensor.h"
#include "core/optim/optimizer_config.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/parameter_partition.h"
#include "dist/weight_windows.h"
#include "kernels/backend.h"

namespace anyorder::dist {

// Parameters [begin, end) of the flat space, all decayed or none, and all at one learning rate.
struct DecaySegment {
  int64_t begin = 0;
  int64_t end = 0;
  bool decays = true;
  double rate = 1;  // multiplies StepInfo::learning_rate
};

// Equal on all ranks.
struct StepInfo {
  double learning_rate = 0;  // of this step (core/optim/schedule.h)
  double grad_scale =
      1;  // multiplies the gradient before norm and clipping: 1 / total target weight
  // The step is skipped if its gradient norm is larger.
  double skip_above_norm = std::numeric_limits<double>::infinity();
  bool skip_update = false;  // only the norm is computed: the step is skipped whatever it is
  // Called in every step when its norm was asked of the device, before whatever changes weights or
  // moments is. Null: nothing to do.
  std::function<void()> before_update = nullptr;
};

struct UpdateOutcome {
  double grad_norm = 0;    // of grad_scale * gradient, over all parameters, before clipping
  double clip_factor = 1;  // what clipping multiplied the gradient with; 1 if skipped
  // Gradient, norm or scale was not finite, the norm too large, or the step held back: nothing was
  // changed, on any rank.
  bool skipped = false;
};

class ShardedOptimizer {
 public:
  ~ShardedOptimizer();
  // `segments` cover [0, num_elements) from left to right without gaps (ANYORDER_CHECK).
  // InvalidArgument from config.Validate; ResourceExhausted from the allocator. Communicator,
  // backend and `transport`, which moves the norm's sums, are borrowed.
  static absl::StatusOr<std::unique_ptr<ShardedOptimizer>> Create(
      Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
      int64_t num_elements, const std::vector<DecaySegment>& segments,
      const OptimizerConfig& config);

  const Partition& partition() const { return partition_; }
  Range owned() const { return partition_.OwnedBy(communicator_.rank()); }

  // The state of the owned range, [owned().size()] fp32 each, of device memory or of the host's
  // that the device reaches (OptimizerConfig::state): what a checkpoint saves and loads (a load
  // writes here and then sets the compute weights) and what initialisation writes. Null on a rank
  // that owns nothing.
  TensorView master() { return master_; }
  TensorView first_moment() { return first_moment_; }
  TensorView second_moment() { return second_moment_; }

  // The range of the weights' average (AverageDecay, core/optim/schedule.h). Null without
  // ema_decay.
  TensorView average() { return average_; }
  // It becomes the master weights as they are: the beginning of an average. Without ema_decay
  // nothing happens.
  void StartAverage();

  // Steps that were not skipped, which is what bias correction and the average's decay count: a
  // skipped one leaves moments and average as they are. The device counts; whoever loads the
  // moments sets it.
  void set_updates(int64_t updates);

  // Collective. gradient: [owned().size()] fp32 of device memory, summed over all microbatches and
  // ranks; `weights` are the rounded master weights. Clips by the global norm, updates the owned
  // range, then sets `weights` to it; a step that is skipped leaves all of it as it is. An
  // operation of the main stream like those of a backend: the host waits only where the transport
  // does.
  void Step(ConstTensorView gradient, const StepInfo& info, WeightWindows& weights);

  // What became of the last Step, the same on every rank. Waits for its norm; the update behind it
  // may still run, and then the average takes in the new weights. Call it after each Step.
  UpdateOutcome AwaitOutcome();

 private:
  ShardedOptimizer(Communicator& communicator, kernels::Backend& backend,
                   DeviceTransport& transport, int64_t num_elements,
                   const std::vector<DecaySegment>& segments, const OptimizerConfig& config);
  absl::Status AllocateState();
  absl::StatusOr<TensorView> Allocate(MemoryPlace place, DType dtype, int64_t size);
  void JudgeNorm(ConstTensorView gradient, const StepInfo& info);
  void Update(ConstTensorView gradient, const StepInfo& info, TensorView weights);
  void UpdateAverage(double decay);

  Communicator& communicator_;
  kernels::Backend& backend_;
  DeviceTransport& transport_;
  const OptimizerConfig config_;
  const Partition partition_;
  const std::vector<DecaySegment> segments_;

  std::vector<std::unique_ptr<kernels::Buffer>> memory_;
  TensorView master_;
  TensorView first_moment_;
  TensorView second_moment_;
  TensorView average_;
  TensorView average_scratch_[2];             // a piece of UpdateAverage each
  int64_t averaged_updates_ = 0;              // updates that the average has taken in
  TensorView block_sums_;                     // [padded_blocks] fp64 of device memory, all ranks'
  kernels::NormControl* control_ = nullptr;   // device memory
  std::unique_ptr<kernels::Buffer> outcome_;  // host memory, the control of the last step
  std::unique_ptr<kernels::Event> outcome_is_there_;
};

}  // namespace anyorder::dist
