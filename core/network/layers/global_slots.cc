#include "core/network/layers/global_slots.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

// Below the rank of every key. Not the padding document, whose rows still see memory.
constexpr int32_t kBlindLim = std::numeric_limits<int32_t>::min();
constexpr int32_t kNoGroup = -1;

}  // namespace

absl::Status GlobalSlots::Allocate(const NetworkShape& shape, DeviceInputs& inputs,
                                   kernels::Backend& backend) {
  if (!shape.model.global_projections || shape.batch.global_rows == 0) return absl::OkStatus();
  const int64_t count = shape.batch.batch_size * shape.batch.global_rows;
  local_lim_ = {shape.batch.num_rows(), inputs};
  local_grp_ = {shape.batch.num_rows(), inputs};
  for (ComputedArray<int32_t>* array : {&pos_, &lim_, &grp_, &doc_, &seg_, &row_ids_})
    *array = {count, inputs};
  glob_ = {count, inputs};
  std::fill(glob_.host.begin(), glob_.host.end(), uint8_t{1});
  if (shape.model.positions != Positions::kRope) return absl::OkStatus();
  const Shape angles{count, shape.model.head_dim};
  ANYORDER_ASSIGN_OR_RETURN(
      storage_, backend.Allocate(angles.num_elements() * SizeOf(shape.gradient_dtype())));
  angles_ = TensorView(storage_->data(), shape.gradient_dtype(), angles);
  return absl::OkStatus();
}

void GlobalSlots::SetInputs(const StepContext& context) {
  if (empty()) return;
  const Batch& batch = context.batch();
  local_lim_.host = batch.row_lim;
  local_grp_.host = batch.row_grp;
  int64_t found = 0;
  for (size_t i = 0; i < row_ids_.host.size(); ++i) {
    const int32_t row = batch.global_slots[i];
    const int64_t lane = static_cast<int64_t>(i) / batch.shape.global_rows;
    ANYORDER_CHECK(row >= lane * batch.shape.content_rows &&
                   row < (lane + 1) * batch.shape.content_rows)
        << "global slot " << row << " is no content row of lane " << lane;
    const bool is_global = batch.row_glob[row] != 0;
    found += is_global ? 1 : 0;
    pos_.host[i] = batch.row_pos[row];
    lim_.host[i] = is_global ? batch.row_lim[row] : kBlindLim;
    grp_.host[i] = is_global ? batch.row_grp[row] : kNoGroup;
    doc_.host[i] = batch.row_doc[row];
    seg_.host[i] = batch.row_seg[row];
    row_ids_.host[i] = batch.row_ids[row];
    if (!is_global) continue;
    local_lim_.host[row] = kBlindLim;
    local_grp_.host[row] = kNoGroup;
  }
  const auto flagged = static_cast<int64_t>(batch.row_glob.size()) -
                       std::count(batch.row_glob.begin(), batch.row_glob.end(), uint8_t{0});
  ANYORDER_CHECK(found == flagged)
      << flagged << " rows are global but " << found << " of them are in the list of global slots";
  for (ComputedArray<int32_t>* array :
       {&local_lim_, &local_grp_, &pos_, &lim_, &grp_, &doc_, &seg_, &row_ids_})
    array->Set();
  glob_.Set();
}

void GlobalSlots::Prepare(const StepContext& context, const RotaryAngles& rotary) {
  if (angles_.is_null()) return;
  context.backend.GatherRows({.x = rotary.rows(),
                              .rows = context.device.global_slots(),
                              .num_rows = angles_.dim(0),
                              .y = angles_},
                             context.stream);
}

kernels::RowVisibility GlobalSlots::rows() const {
  return {pos_.data(), lim_.data(), grp_.data(), doc_.data(), seg_.data(), glob_.data()};
}

}  // namespace anyorder
