// Relative position encodings (Transformer-XL, Dai et al. 2019, section 3.3; XLNet's two reading
// directions).
//
// The encoding of a signed distance x is [ sin(x w_0) .. sin(x w_{d/2-1}) | cos(x w_0) .. cos(x
// w_{d/2-1}) ] with w_f = 10000^(-2f/d): halves side by side, not interleaved, as released
// checkpoints expect. Lanes that read backwards use -x: to them a larger slot number means further
// left in the text.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/base/tensor.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// Writes the encoding of `distance`, clamped to [-clamp_len, clamp_len] unless that is -1, to
// out[0, dim). Angles are computed in double, since |x| w in fp32 would lose up to 1e-4 of a radian
// at the distances in use.
void EncodeDistance(int64_t distance, int64_t clamp_len, int64_t dim, double* out);

class PositionTables {
 public:
  // Nothing unless the model has relative positions: then there are 0 tables.
  absl::Status Allocate(const NetworkShape& shape, DeviceInputs& inputs, kernels::Backend& backend);

  // Picks the tables of the directions that the microbatch has; Prepare, after DeviceInputs::Send,
  // drops out of them.
  //
  // There is one mask per microbatch and direction, keyed by the microbatch's first lane, where the
  // original draws one per example: a mask per example would need a projection per example (R x d x
  // HD each).
  void SetInputs(const StepContext& context);
  void Prepare(const StepContext& context);

  int64_t num_tables() const { return num_tables_; }
  // [num_tables * R, d] T, of the last Prepare.
  ConstTensorView encodings() const { return encodings_; }
  // [B], which of them each lane uses; the device's.
  const int32_t* table_of_lane() const { return table_of_lane_.data(); }
  int64_t bytes() const { return storage_ == nullptr ? 0 : storage_->size_bytes(); }

 private:
  void Fill(const NetworkShape& shape, kernels::Backend& backend) const;

  std::unique_ptr<kernels::Buffer> storage_;
  TensorView both_;     // [2, R, d] T: forward, backward
  TensorView dropped_;  // [2 * R, d] T; null if the model has no dropout
  ConstTensorView encodings_;
  ComputedArray<int32_t> table_of_lane_;
  ComputedArray<int32_t> row_ids_;  // [2 * R]
  int64_t num_tables_ = 0;
};

}  // namespace anyorder
