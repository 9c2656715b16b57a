// What attention knows of where slots stand: encodings of relative positions, a learned bias by
// distance, rotary angles.
//
// Lanes that read backwards have the other sign of distances and angles: to them a larger slot
// number means further left in the text.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/network/tensors/step_context.h"

namespace anyorder {

// Writes the encoding of `distance`, clamped to [-clamp_len, clamp_len] unless that is -1, to
// out[0, dim). Angles are computed in double, since |x| w in fp32 would lose up to 1e-4 of a radian
// at the distances in use.
void EncodeDistance(int64_t distance, int64_t clamp_len, int64_t dim, double* out);

// Relative position encodings (Transformer-XL, Dai et al. 2019, section 3.3; XLNet's two reading
// directions).
//
// The encoding of a signed distance x is [ sin(x w_0) .. sin(x w_{d/2-1}) | cos(x w_0) .. cos(x
// w_{d/2-1}) ] with w_f = 10000^(-2f/d): halves side by side, not interleaved, as released
// checkpoints expect.
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

// The bucket in [0, position_buckets) of a key that stands `relative` = pos_j - pos_i after the
// row. T5's: the upper half of the buckets is for keys ahead; of a half, the lower half is for one
// distance each, the rest grow with the logarithm up to position_bias_max_distance, beyond which
// all share the last. The causal form spends all buckets on keys that are not ahead, and counts
// those that are as distance 0.
// REQUIRES: model.has_distance_bias().
int64_t DistanceBucket(const ModelConfig& model, int64_t relative);

// A learned bias for each head and bucket of distance, one table for all layers, added to attention
// scores after the scale (T5, Raffel et al. 2020, section 2.1; UniLMv2, Bao et al. 2020, has it
// with learned positions).
//
// A bucket is of pos_j - pos_i, the key's place as the row sees it; the kernel's table is by pos_i
// - pos_j.
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

 private:
  std::unique_ptr<kernels::Buffer> storage_;
  TensorView spread_;
  TensorView dspread_;
  int64_t min_distance_ = 0;
  const int32_t* bucket_of_row_ = nullptr;  // [2 * R'], the device's
};

// The angle in radians by which rotary positions turn pair f of a head from one position to the
// next, 0 <= f < D/2: rope_base^(-2f / D). With RopeScaling::kLlama3 (Dubey et al. 2024, section
// 3.4.1; released Llama 3.1 code) a pair that makes fewer than rope_low_freq_factor turns within
// rope_original_positions is slowed down by rope_factor; one that makes more than
// rope_high_freq_factor turns is left; in between the two are mixed, linearly in the turns.
double RotaryFrequency(const ModelConfig& model, int64_t f);

// Angles of rotary positions (Su et al. 2021, section 3.4.2) for the rows and keys of a microbatch:
// pos * RotaryFrequency(f). All layers share them.
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

}  // namespace anyorder
