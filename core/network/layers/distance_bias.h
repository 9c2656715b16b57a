// A learned bias for each head and bucket of distance, one table for all layers, added to attention
// scores after the scale (T5, Raffel et al. 2020, section 2.1; UniLMv2, Bao et al. 2020, has it
// with learned positions).
//
// A bucket is of pos_j - pos_i, the key's place as the row sees it; the kernel's table is by pos_i
// - pos_j. Lanes that read backwards have the other sign: to them a larger slot number means
// further left in the text.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/base/tensor.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// The bucket in [0, position_buckets) of a key that stands `relative` = pos_j - pos_i after the
// row. T5's: the upper half of the buckets is for keys ahead; of a half, the lower half is for one
// distance each, the rest grow with the logarithm up to position_bias_max_distance, beyond which
// all share the last. The causal form spends all buckets on keys that are not ahead, and counts
// those that are as distance 0.
// REQUIRES: model.has_distance_bias().
int64_t DistanceBucket(const ModelConfig& model, int64_t relative);

class DistanceBias {
 public:
  // Nothing unless the model has the bias.
  absl::Status Allocate(const NetworkShape& shape, kernels::Backend& backend);
  // Spreads `buckets` [position_buckets, H] T over distances.
  void Prepare(const StepContext& context, ConstTensorView buckets);
  // dbuckets += the gradient that an attention call has left in dspread().
  void AddGradient(const StepContext& context, TensorView dbuckets) const;

  // [2, R', H], forward and backward lanes: T, and its gradient G; null without. Row r is for
  // min_distance() + r, and lane b uses the table of its direction.
  ConstTensorView spread() const { return spread_; }
  TensorView dspread() const { return dspread_; }
  int64_t min_distance() const { return min_distance_; }
  int64_t bytes() const { return storage_ == nullptr ? 0 : storage_->size_bytes(); }

 private:
  std::unique_ptr<kernels::Buffer> storage_;
  TensorView spread_;
  TensorView dspread_;
  int64_t min_distance_ = 0;
  const int32_t* bucket_of_row_ = nullptr;  // [2 * R'], the device's
};

}  // namespace anyorder
