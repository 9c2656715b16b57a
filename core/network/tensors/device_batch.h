// A microbatch's arrays (batch.h) as operations read them: in the device's memory.

#pragma once

#include <cstdint>

#include "core/network/tensors/device_inputs.h"
#include "core/network/tensors/network_shape.h"
#include "core/objective/batch.h"

namespace anyorder {

class DeviceBatch {
 public:
  DeviceBatch(const NetworkShape& shape, DeviceInputs& inputs);

  // The arrays of `batch`, which is of the network's shape and outlives their use; valid after
  // DeviceInputs::Send.
  void Set(const Batch& batch);

  kernels::RowVisibility rows() const;
  kernels::KeyVisibility keys() const;
  const int32_t* row_ids() const { return row_ids_.data(); }
  const int32_t* direction() const { return direction_.data(); }
  const int32_t* tokens() const { return tokens_.data(); }
  const int32_t* global_slots() const { return global_slots_.data(); }
  const int32_t* labels() const { return labels_.data(); }
  const float* weights() const { return weights_.data(); }
  const int32_t* summary_labels() const { return summary_labels_.data(); }
  const float* summary_weights() const { return summary_weights_.data(); }
  const int32_t* task_labels() const { return task_labels_.data(); }
  const float* task_weights() const { return task_weights_.data(); }

 private:
  DeviceArray<int32_t> tokens_, row_ids_, direction_, global_slots_;
  DeviceArray<int32_t> row_pos_, row_lim_, row_grp_, row_doc_, row_seg_;
  DeviceArray<uint8_t> row_glob_;
  DeviceArray<int32_t> key_pos_, key_key_, key_grp_, key_doc_, key_seg_;
  DeviceArray<uint8_t> key_glob_;
  DeviceArray<int32_t> labels_;
  DeviceArray<float> weights_;
  DeviceArray<int32_t> summary_labels_;
  DeviceArray<float> summary_weights_;
  DeviceArray<int32_t> task_labels_;
  DeviceArray<float> task_weights_;
};

}  // namespace anyorder
