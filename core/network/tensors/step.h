// What one microbatch takes and gives: arguments and results of Transformer::Run.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/tensor.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/memory_ring.h"
#include "core/objective/batch.h"

namespace anyorder {

// Tensors lie in the backend's memory, the batch in the host's. All are borrowed until Run returns.
struct StepArgs {
  const Batch* batch = nullptr;
  // [layout.num_elements()] and [layout.num_frozen_elements()], null without adapters; activation
  // dtype, in pieces of whole windows as they may be.
  FlatSpace<ConstTensorView> weights = {};
  FlatSpace<ConstTensorView> frozen = {};
  RingView memory = {};  // reads M states and writes the free slots; null if M = 0
  uint64_t seed = 0;     // dropout
  bool training = true;  // false: no dropout, no gradients
  // [layout.num_elements()] fp32 (fp64), in pieces of whole windows (Transformer::windows) as it
  // may be: d(sum of all weighted losses), overwritten; null: forward only.
  FlatSpace<TensorView> gradients = {};
  // Called before the operations are queued that read the weights of a layer: forward, and again
  // backward. They may use the memory of another layer's until then. May be null.
  std::function<void(int64_t layer)> layer_begins = nullptr;
  // Called before the operations are queued that write the gradients of the window that begins at
  // `begin`. It runs in the thread of Run. May be null.
  std::function<void(int64_t begin)> window_begins = nullptr;
  // Called while backward is under way, as soon as the operations are queued that make gradient
  // elements [begin, end of the flat space) final. The callback must use them in the same stream,
  // after the operations queued so far. `begin` never rises from call to call, down to 0; a small
  // network may have one call only. It runs in the thread of Run. May be null.
  std::function<void(int64_t begin)> gradients_ready = nullptr;
};

inline void BeginLayer(const StepArgs& args, int64_t layer) {
  if (args.layer_begins) args.layer_begins(layer);
}

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

struct StepResult {
  double loss_sum = 0;         // sum of weight * nll over the readout and the task head, in nats
  double divisor = 0;          // what the step divides loss_sum by: Batch::Divisor()
  std::vector<NamedSum> sums;  // of all heads, as Transformer::sums()
};

}  // namespace anyorder
