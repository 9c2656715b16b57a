#include "core/network/layers/positions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {

namespace {

constexpr int32_t kUnknown = std::numeric_limits<int32_t>::min();

// Element `place` of the host's `out`.
void Store(double value, int64_t place, TensorView out) {
  switch (out.dtype()) {
    case DType::kFloat64: out.data<double>()[place] = value; break;
    case DType::kFloat32: out.data<float>()[place] = static_cast<float>(value); break;
    case DType::kBFloat16: out.data<BFloat16>()[place] = BFloat16(static_cast<float>(value)); break;
    default: ANYORDER_CHECK(false) << "positions in " << std::string(Name(out.dtype()));
  }
}

}  // namespace

void EncodeDistance(int64_t distance, int64_t clamp_len, int64_t dim, double* out) {
  if (clamp_len > 0) distance = std::clamp(distance, -clamp_len, clamp_len);
  const int64_t half = dim / 2;
  for (int64_t f = 0; f < half; ++f) {
    const double frequency =
        std::pow(10000.0, -2.0 * static_cast<double>(f) / static_cast<double>(dim));
    const double angle = static_cast<double>(distance) * frequency;
    out[f] = std::sin(angle);
    out[half + f] = std::cos(angle);
  }
}

absl::Status PositionTables::Allocate(const NetworkShape& shape, DeviceInputs& inputs,
                                      kernels::Backend& backend) {
  if (!shape.model.relative_positions()) return absl::OkStatus();
  const int64_t distances = shape.batch.num_distances;
  const int64_t dim = shape.model.model_dim;
  const bool drops = shape.model.dropout > 0;
  const int64_t table_bytes = 2 * distances * dim * SizeOf(shape.dtype());
  ASSIGN_OR_RETURN(storage_, backend.Allocate(drops ? 2 * table_bytes : table_bytes));
  both_ = TensorView(storage_->data(), shape.dtype(), {2, distances, dim});
  if (drops) {
    dropped_ = TensorView(static_cast<char*>(storage_->data()) + table_bytes, shape.dtype(),
                          {2 * distances, dim});
  }
  Fill(shape, backend);
  table_of_lane_ = {shape.batch.batch_size, inputs};
  row_ids_ = {2 * distances, inputs};
  return absl::OkStatus();
}

// One direction at a time.
void PositionTables::Fill(const NetworkShape& shape, kernels::Backend& backend) const {
  const int64_t distances = both_.dim(1);
  const int64_t dim = both_.dim(2);
  std::vector<double> row(static_cast<size_t>(dim));
  std::vector<char> bytes(static_cast<size_t>(both_.num_bytes() / 2));
  const TensorView table(bytes.data(), both_.dtype(), {distances, dim});
  for (int64_t direction = 0; direction < 2; ++direction) {
    for (int64_t r = 0; r < distances; ++r) {
      const int64_t distance = shape.batch.min_distance + r;
      EncodeDistance(direction == 0 ? distance : -distance, shape.model.clamp_len, dim, row.data());
      for (int64_t i = 0; i < dim; ++i) Store(row[i], r * dim + i, table);
    }
    const TensorView target = both_.Slice(direction * distances * dim, table.shape());
    backend.CopyToDevice(table.raw(), target.raw(), table.num_bytes(), {});
  }
}

void PositionTables::SetInputs(const StepContext& context) {
  if (both_.is_null()) return;
  const Batch& batch = context.batch();
  const int64_t distances = context.shape.batch.num_distances;
  const bool has_forward = std::count(batch.direction.begin(), batch.direction.end(), 0) > 0;
  const bool has_backward = std::count(batch.direction.begin(), batch.direction.end(), 1) > 0;
  num_tables_ = (has_forward ? 1 : 0) + (has_backward ? 1 : 0);
  const int64_t first = has_forward ? 0 : 1;
  for (size_t b = 0; b < table_of_lane_.host.size(); ++b) {
    ANYORDER_CHECK(batch.direction[b] == 0 || batch.direction[b] == 1)
        << "direction " << batch.direction[b];
    table_of_lane_.host[b] = batch.direction[b] - static_cast<int32_t>(first);
  }
  table_of_lane_.Set();
  encodings_ = both_.Slice(first * distances * context.model_dim(),
                           {num_tables_ * distances, context.model_dim()});
  if (!context.Dropout(kPositionSite).enabled()) return;
  for (int64_t row = 0; row < num_tables_ * distances; ++row) {
    row_ids_.host[row] = static_cast<int32_t>((2 * batch.lanes[0] + first) * distances + row);
  }
  row_ids_.Set();
}

void PositionTables::Prepare(const StepContext& context) {
  if (both_.is_null()) return;
  const kernels::Dropout dropout = context.Dropout(kPositionSite);
  if (!dropout.enabled()) return;
  const TensorView target = dropped_.Slice(0, encodings_.shape());
  context.backend.DropoutApply(
      {.x = encodings_, .dropout = dropout, .row_ids = row_ids_.data(), .y = target},
      context.stream);
  encodings_ = target;
}

int64_t DistanceBucket(const ModelConfig& model, int64_t relative) {
  const bool both_ways = model.position_bias == PositionBias::kT5;
  const int64_t buckets = both_ways ? model.position_buckets / 2 : model.position_buckets;
  const int64_t first = both_ways && relative > 0 ? buckets : 0;
  const int64_t distance = both_ways ? std::abs(relative) : std::max<int64_t>(-relative, 0);
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  // On a boundary the logarithms' rounding would decide; the released code's comes out above.
  constexpr double kSlack = 1e-9;
  const double octaves =
      std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
      std::log(static_cast<double>(model.position_bias_max_distance) / static_cast<double>(exact));
  const auto steps = static_cast<int64_t>(octaves * static_cast<double>(buckets - exact) + kSlack);
  return first + std::min(buckets - 1, exact + steps);
}

absl::Status DistanceBias::Allocate(const NetworkShape& shape, kernels::Backend& backend) {
  if (!shape.model.has_distance_bias()) return absl::OkStatus();
  const int64_t distances = shape.num_bias_distances();
  const Shape table{2, distances, shape.model.num_heads};
  const int64_t gradient_bytes =
      AlignedBytes(table.num_elements() * SizeOf(shape.gradient_dtype()));
  const int64_t bucket_bytes = AlignedBytes(2 * distances * static_cast<int64_t>(sizeof(int32_t)));
  const int64_t bytes =
      gradient_bytes + bucket_bytes + table.num_elements() * SizeOf(shape.dtype());
  ASSIGN_OR_RETURN(storage_, backend.Allocate(bytes));
  char* const data = static_cast<char*>(storage_->data());
  dspread_ = TensorView(data, shape.gradient_dtype(), table);
  spread_ = TensorView(data + gradient_bytes + bucket_bytes, shape.dtype(), table);
  // From the maximum on every distance shares one bucket, so the table may end there.
  min_distance_ = -shape.model.position_bias_max_distance;
  std::vector<int32_t> buckets;
  for (const int64_t sign : {-1, 1}) {
    for (int64_t r = 0; r < distances; ++r)
      buckets.push_back(
          static_cast<int32_t>(DistanceBucket(shape.model, sign * (min_distance_ + r))));
  }
  backend.CopyToDevice(buckets.data(), data + gradient_bytes,
                       static_cast<int64_t>(buckets.size() * sizeof(int32_t)), {});
  bucket_of_row_ = reinterpret_cast<const int32_t*>(data + gradient_bytes);
  return absl::OkStatus();
}

void DistanceBias::Prepare(const StepContext& context, ConstTensorView buckets) {
  if (spread_.is_null()) return;
  const TensorView rows = spread_.Slice(0, {spread_.dim(0) * spread_.dim(1), spread_.dim(2)});
  context.backend.EmbeddingForward({.table = buckets, .ids = bucket_of_row_, .y = rows},
                                   context.stream);
}

void DistanceBias::AddGradient(const StepContext& context, TensorView dbuckets) const {
  if (dspread_.is_null()) return;
  const TensorView rows = dspread_.Slice(0, {dspread_.dim(0) * dspread_.dim(1), dspread_.dim(2)});
  context.backend.EmbeddingBackward({.dy = rows, .ids = bucket_of_row_, .dtable = dbuckets},
                                    context.stream);
}

double RotaryFrequency(const ModelConfig& model, int64_t f) {
  const double frequency = std::pow(
      model.rope_base, -2.0 * static_cast<double>(f) / static_cast<double>(model.head_dim));
  if (model.rope_scaling == RopeScaling::kNone) return frequency;
  const auto original = static_cast<double>(model.rope_original_positions);
  const double turns = original * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp((turns - model.rope_low_freq_factor) /
                                     (model.rope_high_freq_factor - model.rope_low_freq_factor),
                                 0.0, 1.0);
  return (1 - kept) * frequency / model.rope_factor + kept * frequency;
}

absl::Status RotaryAngles::Allocate(const NetworkShape& shape, kernels::Backend& backend) {
  if (shape.model.positions != Positions::kRope) return absl::OkStatus();
  const int64_t dim = shape.model.head_dim;
  const DType dtype = shape.gradient_dtype();
  const int64_t num_rows = shape.batch.num_rows();
  const bool is_cached = shape.batch.cached_keys > 0;
  const int64_t num_keys = is_cached ? 0 : shape.batch.batch_size * shape.batch.num_keys();
  const int64_t row_bytes = num_rows * dim * SizeOf(dtype);
  ASSIGN_OR_RETURN(storage_, backend.Allocate(row_bytes + num_keys * dim * SizeOf(dtype)));
  rows_ = TensorView(storage_->data(), dtype, {num_rows, dim});
  // Keys in a cache are turned already; what joins them are content rows.
  keys_ = is_cached ? Rows(rows_, 0, shape.batch.batch_size * shape.batch.content_rows)
                    : TensorView(static_cast<char*>(storage_->data()) + row_bytes, dtype,
                                 {num_keys, dim});
  host_rows_ = rows_;
  host_keys_ = keys_;
  if (!backend.is_host_memory()) {
    staging_.resize(static_cast<size_t>(storage_->size_bytes()));
    host_rows_ = TensorView(staging_.data(), dtype, rows_.shape());
    host_keys_ = TensorView(staging_.data() + row_bytes, dtype, {num_keys, dim});
  }
  known_rows_.assign(static_cast<size_t>(num_rows), kUnknown);
  known_keys_.assign(static_cast<size_t>(num_keys), kUnknown);
  for (int64_t f = 0; f < dim / 2; ++f) {
    frequencies_.push_back(RotaryFrequency(shape.model, f));
  }
  return absl::OkStatus();
}

bool RotaryAngles::Fill(int32_t position, int64_t row, std::vector<int32_t>& known,
                        TensorView table) const {
  if (known[row] == position) return false;
  known[row] = position;
  const auto half = static_cast<int64_t>(frequencies_.size());
  for (int64_t f = 0; f < half; ++f) {
    // In double: at far positions an angle in fp32 would be off by a visible part of a turn.
    const double angle = static_cast<double>(position) * frequencies_[f];
    const int64_t place = row * 2 * half + f;
    Store(std::cos(angle), place, table);
    Store(std::sin(angle), place + half, table);
  }
  return true;
}

void RotaryAngles::SetInputs(const StepContext& context) {
  if (rows_.is_null()) return;
  const Batch& batch = context.batch();
  const BatchShape& shape = batch.shape;
  const auto turned = [&batch](int64_t lane, int32_t position) {
    return batch.direction[lane] == 0 ? position : -position;
  };
  const int64_t content = shape.batch_size * shape.content_rows;
  bool changed = false;
  for (int64_t row = 0; row < shape.num_rows(); ++row) {
    const int64_t lane =
        row < content ? row / shape.content_rows : (row - content) / shape.query_rows;
    changed |= Fill(turned(lane, batch.row_pos[row]), row, known_rows_, host_rows_);
  }
  for (int64_t key = 0; key < static_cast<int64_t>(known_keys_.size()); ++key)
    changed |=
        Fill(turned(key / shape.num_keys(), batch.key_pos[key]), key, known_keys_, host_keys_);
  if (changed && !staging_.empty())
    context.backend.CopyToDevice(staging_.data(), storage_->data(),
                                 static_cast<int64_t>(staging_.size()), context.stream);
}

}  // namespace anyorder
