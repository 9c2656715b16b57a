// Global slots that attend with projections of their own (Longformer, Beltagy et al. 2020, section
// 3.2; its released code): a second attention call whose rows are a lane's global slots, with keys
// and values from global_k and global_v, replaces what the first call, with everybody's
// projections, would give those rows. To the first call they are rows that see nothing; the slots
// they are stay keys in it.
//
// Windows do not bind them; rank, group and document do, so that a causal global slot stays causal.

#pragma once

#include <cstdint>
#include <vector>

#include "core/network/layers/rotary_angles.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class GlobalSlots {
 public:
  // Nothing unless the model has global projections and the batch global rows.
  absl::Status Allocate(const NetworkShape& shape, DeviceInputs& inputs, kernels::Backend& backend);
  // Reads the microbatch's global slots. Each row with a global flag must be among them.
  void SetInputs(const StepContext& context);
  // Their angles; after DeviceInputs::Send.
  void Prepare(const StepContext& context, const RotaryAngles& rotary);

  bool empty() const { return row_ids_.host.empty(); }
  // Of the device:
  // `lim` and `grp` of all rows for the first call: global ones see nothing.
  const int32_t* local_lim() const { return local_lim_.data(); }
  const int32_t* local_grp() const { return local_grp_.data(); }
  // The second call's rows, [B * G]; entries over see nothing.
  kernels::RowVisibility rows() const;
  const int32_t* row_ids() const { return row_ids_.data(); }
  // [B * G, D] G, null without rotary positions.
  ConstTensorView angles() const { return angles_; }
  int64_t bytes() const { return storage_ == nullptr ? 0 : storage_->size_bytes(); }

 private:
  ComputedArray<int32_t> local_lim_, local_grp_;  // [N]
  ComputedArray<int32_t> pos_, lim_, grp_, doc_, seg_, row_ids_;
  ComputedArray<uint8_t> glob_;
  std::unique_ptr<kernels::Buffer> storage_;
  TensorView angles_;
};

}  // namespace anyorder
