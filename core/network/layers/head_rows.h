// Rows of the last layer's output that a head reads, and the way of their gradients back.

#pragma once

#include <cstdint>

#include "core/network/tensors/device_inputs.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class HeadRows {
 public:
  HeadRows(int64_t count, DeviceInputs& inputs) : rows_(count, inputs), ids_(count, inputs) {}

  int64_t size() const { return static_cast<int64_t>(rows_.host.size()); }
  // Entry `entry` reads row `row` of the batch and has the dropout of row `id_row`. Returns the row
  // of activations.output. REQUIRES: the last layer computes it. Send once all are set.
  int32_t Set(const StepContext& context, int64_t entry, int32_t row, int32_t id_row);
  void Send();

  // y[i] = output[row of entry i]
  void Gather(const StepContext& context, TensorView y) const;
  // y = dropout of x; nothing where there is none.
  void Drop(const StepContext& context, const kernels::Dropout& dropout, ConstTensorView x,
            TensorView y) const;
  // Adds dy[i] to activations.dinput at the row of entry first + i. REQUIRES: these rows differ.
  void AddGradients(const StepContext& context, ConstTensorView dy, int64_t first = 0) const;

  // The entries' logical ids.
  const int32_t* ids() const { return ids_.data(); }

 private:
  ComputedArray<int32_t> rows_;  // of activations.output
  ComputedArray<int32_t> ids_;
};

}  // namespace anyorder
