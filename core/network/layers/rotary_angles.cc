#include "core/network/layers/rotary_angles.h"

#include <cmath>
#include <limits>

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr int32_t kUnknown = std::numeric_limits<int32_t>::min();

}  // namespace

absl::Status RotaryAngles::Allocate(const NetworkShape& shape, kernels::Backend& backend) {
  if (shape.model.positions != Positions::kRope) return absl::OkStatus();
  const int64_t dim = shape.model.head_dim;
  const DType dtype = shape.gradient_dtype();
  const int64_t num_rows = shape.batch.num_rows();
  const bool is_cached = shape.batch.cached_keys > 0;
  const int64_t num_keys = is_cached ? 0 : shape.batch.batch_size * shape.batch.num_keys();
  const int64_t row_bytes = num_rows * dim * SizeOf(dtype);
  ANYORDER_ASSIGN_OR_RETURN(storage_, backend.Allocate(row_bytes + num_keys * dim * SizeOf(dtype)));
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
    frequencies_.push_back(
        std::pow(shape.model.rope_base, -2.0 * static_cast<double>(f) / static_cast<double>(dim)));
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
    if (table.dtype() == DType::kFloat64) {
      table.data<double>()[place] = std::cos(angle);
      table.data<double>()[place + half] = std::sin(angle);
    } else {
      table.data<float>()[place] = static_cast<float>(std::cos(angle));
      table.data<float>()[place + half] = static_cast<float>(std::sin(angle));
    }
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

void Rotate(const StepContext& context, TensorView x, ConstTensorView angles, bool inverse) {
  if (angles.is_null()) return;
  context.backend.RotaryApply({.x = x, .angles = angles, .inverse = inverse, .y = x},
                              context.stream);
}

}  // namespace anyorder
