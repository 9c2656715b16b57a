// What the attention of all layers reads in addition to activations and its own weights: positions,
// windows, global slots.

#pragma once

#include <vector>

#include "absl/status/status.h"

#include "core/network/layers/attention_plans.h"
#include "core/network/layers/distance_bias.h"
#include "core/network/layers/global_slots.h"
#include "core/network/layers/positions.h"
#include "core/network/layers/rotary_angles.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

struct AttentionTables {
  PositionTables relative;
  RotaryAngles rotary;
  DistanceBias bias;
  GlobalSlots globals;
  AttentionPlans plans;
  std::vector<kernels::Band> windows;  // [L * H], of the configuration; empty: unlimited
  DeviceArray<kernels::Band> bands;    // those, or the batch's own; null: unlimited

  absl::Status Allocate(const NetworkShape& shape, DeviceInputs& inputs, kernels::Backend& backend);
  // What the host computes for the microbatch of `context`, then, after DeviceInputs::Send, the
  // device.
  void SetInputs(const StepContext& context);
  void Prepare(const StepContext& context, const NetworkWeights& weights);
  int64_t bytes() const {
    return relative.bytes() + rotary.bytes() + bias.bytes() + globals.bytes() + plans.bytes();
  }
};

}  // namespace anyorder
