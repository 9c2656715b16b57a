// What one microbatch takes and gives, and what every part of the network needs while it runs.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/tensor.h"
#include "core/network/tensors/activations.h"
#include "core/network/tensors/device_inputs.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/memory_ring.h"
#include "core/network/tensors/network_shape.h"
#include "core/objective/batch.h"
#include "kernels/backend.h"

namespace anyorder {

// Arguments of Transformer::Run. Tensors lie in the backend's memory, the batch in the host's. All
// are borrowed until Run returns.
struct StepArgs {
  const Batch* batch = nullptr;
  ConstTensorView weights = {};  // [layout.num_elements()]  activation dtype, whole flat space
  ConstTensorView frozen = {};   // [layout.num_frozen_elements()]  the same; null without adapters
  RingView memory = {};          // reads M states and writes the free slots; null if M = 0
  uint64_t seed = 0;             // dropout
  bool training = true;          // false: no dropout, no gradients
  TensorView gradients = {};     // [layout.num_elements()] fp32 (fp64): d(sum of all weighted
                                 // losses), overwritten; null: forward only
  // Called while backward is under way, as soon as the operations are queued that make gradient
  // elements [begin, end of the flat space) final. The callback must use them in the same stream,
  // after the operations queued so far. `begin` never rises from call to call, down to 0; a small
  // network may have one call only. It runs in the thread of Run. May be null.
  std::function<void(int64_t begin)> gradients_ready = nullptr;
};

// A figure that a head reports of a microbatch, by its name in a run's metrics. It is sum / weight;
// sums and weights of microbatches add up.
struct NamedSum {
  std::string name;
  double sum = 0;
  double weight = 0;  // 0: no entry of the microbatch has the figure
};

// The one with that name; without one, all 0.
inline NamedSum SumNamed(absl::string_view name, const std::vector<NamedSum>& sums) {
  for (const NamedSum& sum : sums) {
    if (sum.name == name) return sum;
  }
  return {};
}

// Its results.
struct StepResult {
  double loss_sum = 0;         // sum of weight * nll over the readout and the task head, in nats
  double divisor = 0;          // what the step divides loss_sum by: Batch::Divisor()
  std::vector<NamedSum> sums;  // of all heads, as Transformer::sums()
};

// Numbers of the network's dropout sites. A mask depends on (seed, step, site, row, column) alone,
// so the numbers are part of a run's identity: append, never renumber.
//
// Content and query rows share every site: their logical row ids differ.
enum class DropoutPlace : uint32_t {
  kAttentionProbabilities = 0,
  kAttentionOutput = 1,      // before the residual sum
  kFeedForwardHidden = 2,    // after the activation
  kFeedForwardOutput = 3,    // before the residual sum
  kGlobalProbabilities = 4,  // of global slots with projections of their own
};

inline constexpr uint32_t kEmbeddingSite = 0;
inline constexpr uint32_t kPositionSite = 1;  // rows: see positions.h
inline constexpr uint32_t kReadoutSite = 2;
inline constexpr uint32_t kSummarySite = 3;  // between the two layers of the next-sentence head
inline constexpr uint32_t kTaskSite = 4;     // states that the task head reads

constexpr uint32_t DropoutSite(int64_t layer, DropoutPlace place) {
  return 16 + 8 * static_cast<uint32_t>(layer) + static_cast<uint32_t>(place);
}

struct KeyCache;

// Owns nothing: all that it refers to outlives the step.
struct StepContext {
  const NetworkShape& shape;
  const StepArgs& args;
  Activations& activations;
  const DeviceBatch& device;  // the batch's arrays for operations
  const NetworkWeights& weights;
  const NetworkGradients& gradients;  // bound where the step learns
  kernels::Backend& backend;
  StreamView stream;
  // Where keys and values are stored and read, if shape.batch.cached_keys is not 0; else null.
  KeyCache* cache = nullptr;

  // For the host.
  const Batch& batch() const { return *args.batch; }
  bool learns() const { return args.training && !args.gradients.is_null(); }
  int64_t model_dim() const { return shape.model.model_dim; }

  // The network's dropout, and that of attention probabilities; off in evaluation.
  kernels::Dropout Dropout(uint32_t site) const { return Make(site, shape.model.dropout); }
  kernels::Dropout AttentionDropout(uint32_t site) const {
    return Make(site, shape.model.attention_dropout);
  }
  // Dropout of what is read out.
  kernels::Dropout ReadoutDropout(uint32_t site) const {
    return Make(site, shape.model.readout_dropout ? shape.model.dropout : 0.0);
  }
  kernels::Dropout TaskDropout(uint32_t site) const { return Make(site, shape.model.task.dropout); }

 private:
  kernels::Dropout Make(uint32_t site, double rate) const {
    if (!args.training) return {};
    return kernels::MakeDropout(args.seed, static_cast<uint64_t>(batch().step), site, rate);
  }
};

// The first `rows` rows of a scratch matrix, or `rows` rows from `first` on.
inline TensorView Rows(const TensorView& matrix, int64_t first, int64_t rows) {
  const int64_t columns = matrix.dim(1);
  return matrix.Slice(first * columns, {rows, columns});
}

}  // namespace anyorder
