#include "core/objective/any_order/window_slots.h"

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {

BatchShape WindowShape(const WindowSlots& slots, int64_t batch_size) {
  BatchShape shape;
  shape.batch_size = batch_size;
  shape.content_rows = slots.content;
  shape.query_rows = slots.query;
  shape.targets = slots.targets;
  shape.advance = slots.seq_len;
  shape.min_distance = 1 - slots.seq_len;
  shape.num_distances = 2 * slots.seq_len - 1;
  shape.content_readout = slots.query == 0;
  shape.own_divisor = slots.own_divisor;
  return shape;
}

absl::Status CheckAnyOrder(const std::string& name, const ModelConfig& model,
                           const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(CheckReadsWindows(name, model, sampling));
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kContiguous));
  ANYORDER_RETURN_IF_ERROR(CheckReadsNoPairs(name, model));
  if (model.same_length != SameLength::kOff) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.same_length is on, but rows of ", name,
                     " do not read from left to right; use causal_lm"));
  }
  return absl::OkStatus();
}

}  // namespace anyorder
