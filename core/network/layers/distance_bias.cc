#include "core/network/layers/distance_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/base/status.h"

namespace anyorder {
namespace {

int64_t Padded(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

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
  const int64_t gradient_bytes = Padded(table.num_elements() * SizeOf(shape.gradient_dtype()));
  const int64_t bucket_bytes = Padded(2 * distances * static_cast<int64_t>(sizeof(int32_t)));
  const int64_t bytes =
      gradient_bytes + bucket_bytes + table.num_elements() * SizeOf(shape.dtype());
  ANYORDER_ASSIGN_OR_RETURN(storage_, backend.Allocate(bytes));
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

}  // namespace anyorder
