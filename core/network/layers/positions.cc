#include "core/network/layers/positions.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

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
  ANYORDER_ASSIGN_OR_RETURN(storage_, backend.Allocate(drops ? 2 * table_bytes : table_bytes));
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

}  // namespace anyorder
