// Angles of rotary positions (Su et al. 2021, section 3.4.2) for the rows and keys of a microbatch:
// pos * rope_base^(-2f / D), 0 <= f < D/2. All layers share them. Lanes that read backwards turn
// the other way, as their relative tables do (positions.h): to them a larger slot number means
// further left in the text.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/network/tensors/step_context.h"

namespace anyorder {

class RotaryAngles {
 public:
  // Nothing unless the model has rotary positions.
  absl::Status Allocate(const NetworkShape& shape, kernels::Backend& backend);
  // Angles of the microbatch's positions, sent to the device. Those that have not changed since the
  // last call are kept.
  void SetInputs(const StepContext& context);

  // [N, D] and [B * K, D] G (with a KeyCache its own keys only): cosines, then sines, of each row.
  // Null without rotary positions.
  ConstTensorView rows() const { return rows_; }
  ConstTensorView keys() const { return keys_; }
  int64_t bytes() const { return storage_ == nullptr ? 0 : storage_->size_bytes(); }

 private:
  // Angles of `position` to row `row` of `table`, unless `known` says that it has them; then false.
  bool Fill(int32_t position, int64_t row, std::vector<int32_t>& known, TensorView table) const;

  std::unique_ptr<kernels::Buffer> storage_;
  TensorView rows_, keys_;
  // What the host writes: those, or where the device's memory is another, what is copied there.
  TensorView host_rows_, host_keys_;
  std::vector<char> staging_;
  std::vector<double> frequencies_;               // [D / 2]
  std::vector<int32_t> known_rows_, known_keys_;  // positions that the tables hold
};

// Turns x in place, or back for a gradient; nothing if `angles` is null.
void Rotate(const StepContext& context, TensorView x, ConstTensorView angles, bool inverse);

}  // namespace anyorder
