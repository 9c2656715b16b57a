// What the attention of all layers reads in addition to activations and its own weights: positions,
// windows, global slots.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/network/layers/positions.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// Global slots that attend with projections of their own (Longformer, Beltagy et al. 2020, section
// 3.2; its released code): a second attention call whose rows are a lane's global slots, with keys
// and values from global_k and global_v, replaces what the first call, with everybody's
// projections, would give those rows. To the first call they are rows that see nothing; the slots
// they are stay keys in it.
//
// Windows do not bind them; rank, group and document do, so that a causal global slot stays causal.
class GlobalSlots {
 public:
  // Nothing unless the model has global projections and the batch global rows.
  absl::Status Allocate(const NetworkShape& shape, DeviceInputs& inputs, kernels::Backend& backend);
  // Reads the microbatch's global slots. Each row with a global flag must be among them.
  void SetInputs(const StepContext& context);
  // Their angles; after DeviceInputs::Send.
  void Prepare(const StepContext& context, const RotaryAngles& rotary);

  bool empty() const { return row_ids_.host.empty(); }
  // In the device's memory: `lim` and `grp` of all rows for the first call: global ones see
  // nothing.
  const int32_t* local_lim() const { return local_lim_.data(); }
  const int32_t* local_grp() const { return local_grp_.data(); }
  // The second call's rows, [B * G]; entries over see nothing.
  kernels::RowVisibility rows() const {
    return {pos_.data(), lim_.data(), grp_.data(), doc_.data(), seg_.data(), glob_.data()};
  }
  const int32_t* row_ids() const { return row_ids_.data(); }
  // [B * G, D] G, null without rotary positions.
  ConstTensorView angles() const { return angles_; }

 private:
  ComputedArray<int32_t> local_lim_, local_grp_;  // [N]
  ComputedArray<int32_t> pos_, lim_, grp_, doc_, seg_, row_ids_;
  ComputedArray<uint8_t> glob_;
  std::unique_ptr<kernels::Buffer> storage_;
  TensorView angles_;
};

// What attention works out ahead for a microbatch (kernels::AttentionPlan): one plan for each
// arrangement of rows and keys, which all its layers share, forward and backward. Windows, biases
// and dropout differ from layer to layer and are no part of it.
class AttentionPlans {
 public:
  // kGlobalSlots: their own call.
  enum Arrangement { kAllRows, kQueryRows, kGlobalSlots, kArrangements };
  static Arrangement ArrangementOf(const NetworkShape& shape, int64_t layer) {
    return shape.first_row(layer) == 0 ? kAllRows : kQueryRows;
  }

  // ResourceExhausted.
  absl::Status Allocate(const NetworkShape& shape, kernels::Backend& backend);
  // The plans of the context's microbatch; after DeviceInputs::Send and the tables' own SetInputs.
  void Prepare(const StepContext& context, const PositionTables& relative,
               const GlobalSlots& globals);

  // Sets shape, rows, keys, distances and plan of an attention call.
  void SetInputs(Arrangement arrangement, kernels::AttentionInputs* in) const;

 private:
  std::array<bool, kArrangements> is_used_ = {};
  std::array<kernels::AttentionPlan, kArrangements> plans_;
  std::unique_ptr<kernels::Buffer> storage_;
};

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
  void Prepare(const StepContext& context);
  // Of `keys` the share in a row's window of the configuration, on average over the layer's heads.
  double SeenShare(int64_t layer, int64_t heads, int64_t keys) const;
};

}  // namespace anyorder
