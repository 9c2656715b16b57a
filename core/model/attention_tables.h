// What the attention of all layers reads beside activations and weights: positions, windows, global slots.

#pragma once

#include <vector>

#include "absl/status/status.h"

#include "core/model/global_slots.h"
#include "core/model/positions.h"
#include "core/model/rotary_angles.h"
#include "core/model/step_context.h"

namespace anyorder {

struct AttentionTables {
  PositionTables relative;
  RotaryAngles rotary;
  GlobalSlots globals;
  std::vector<kernels::Band> bands;  // [L * H], of the configuration; empty: unlimited

  absl::Status Allocate(const NetworkShape& shape, kernels::Backend& backend);
  // For the microbatch of `context`.
  void Prepare(const StepContext& context);
  int64_t bytes() const { return relative.bytes() + rotary.bytes() + globals.bytes(); }
};

}  // namespace anyorder
