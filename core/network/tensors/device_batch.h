// A microbatch's arrays (batch.h) as operations read them: in the device's memory.

#pragma once

#include <cstdint>

#include "core/network/tensors/device_inputs.h"
#include "core/objective/batch.h"
#include "kernels/visibility.h"

namespace anyorder {

struct DeviceBatch {
  DeviceBatch(const BatchShape& shape, DeviceInputs& inputs);

  // The arrays of `batch`, which is of that shape and outlives their use; valid after
  // DeviceInputs::Send.
  void Set(const Batch& batch);
  kernels::RowVisibility rows() const { return RowsOf(*this); }
  kernels::KeyVisibility keys() const { return KeysOf(*this); }

  DeviceArray<int32_t> tokens, row_ids, direction, global_slots;
  DeviceArray<int32_t> row_pos, row_lim, row_grp, row_doc, row_seg;
  DeviceArray<uint8_t> row_glob;
  DeviceArray<int32_t> key_pos, key_key, key_grp, key_doc, key_seg;
  DeviceArray<uint8_t> key_glob;
  DeviceArray<int32_t> labels, summary_labels, task_labels, task_starts, task_ends,
      task_classifiers;
  DeviceArray<float> weights, summary_weights, task_weights, task_scores;
  DeviceArray<uint8_t> task_valid;

 private:
  // Calls visit(array, batch's) for each.
  template <typename Visit>
  void VisitArrays(const Batch& batch, const Visit& visit);
};

}  // namespace anyorder
