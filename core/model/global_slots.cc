#include "core/model/global_slots.h"

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

absl::Status GlobalSlots::Allocate(const NetworkShape& shape, kernels::Backend& backend) {
  if (!shape.model.global_projections || shape.batch.global_rows == 0) return absl::OkStatus();
  const int64_t count = shape.batch.batch_size * shape.batch.global_rows;
  local_lim_.assign(static_cast<size_t>(shape.batch.num_rows()), 0);
  local_grp_ = local_lim_;
  for (std::vector<int32_t>* array : {&pos_, &lim_, &grp_, &doc_, &seg_, &row_ids_})
    array->assign(static_cast<size_t>(count), 0);
  glob_.assign(static_cast<size_t>(count), 1);
  if (shape.model.positions != Positions::kRope) return absl::OkStatus();
  const Shape angles{count, shape.model.head_dim};
  ANYORDER_ASSIGN_OR_RETURN(
      storage_, backend.Allocate(angles.num_elements() * SizeOf(shape.gradient_dtype())));
  angles_ = TensorView(storage_->data(), shape.gradient_dtype(), angles);
  return absl::OkStatus();
}

void GlobalSlots::Prepare(const StepContext& context, const RotaryAngles& rotary) {
  if (empty()) return;
  const Batch& batch = context.batch();
  local_lim_ = batch.row_lim;
  local_grp_ = batch.row_grp;
  int64_t found = 0;
  for (size_t i = 0; i < row_ids_.size(); ++i) {
    const int32_t row = batch.global_slots[i];
    const int64_t lane = static_cast<int64_t>(i) / batch.shape.global_rows;
    ANYORDER_CHECK(row >= lane * batch.shape.content_rows &&
                   row < (lane + 1) * batch.shape.content_rows)
        << "global slot " << row << " is no content row of lane " << lane;
    const bool is_global = batch.row_glob[row] != 0;
    found += is_global ? 1 : 0;
    pos_[i] = batch.row_pos[row];
    lim_[i] = is_global ? batch.row_lim[row] : kBlindLim;
    grp_[i] = is_global ? batch.row_grp[row] : kNoGroup;
    doc_[i] = batch.row_doc[row];
    seg_[i] = batch.row_seg[row];
    row_ids_[i] = batch.row_ids[row];
    if (!is_global) continue;
    local_lim_[row] = kBlindLim;
    local_grp_[row] = kNoGroup;
  }
  const auto flagged = static_cast<int64_t>(batch.row_glob.size()) -
                       std::count(batch.row_glob.begin(), batch.row_glob.end(), uint8_t{0});
  ANYORDER_CHECK(found == flagged)
      << flagged << " rows are global but " << found << " of them are in the list of global slots";
  if (angles_.is_null()) return;
  const int64_t bytes = angles_.dim(1) * SizeOf(angles_.dtype());
  for (size_t i = 0; i < row_ids_.size(); ++i) {
    const char* const from =
        static_cast<const char*>(rotary.rows().raw()) + batch.global_slots[i] * bytes;
    std::copy(
        from, from + bytes, static_cast<char*>(angles_.raw()) + static_cast<int64_t>(i) * bytes);
  }
}

kernels::RowVisibility GlobalSlots::rows() const {
  return {pos_.data(), lim_.data(), grp_.data(), doc_.data(), seg_.data(), glob_.data()};
}

}  // namespace anyorder
