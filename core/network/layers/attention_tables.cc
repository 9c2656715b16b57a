#include "core/network/layers/attention_tables.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/config/attention_windows.h"
#include "core/network/layers/operations.h"

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
  ASSIGN_OR_RETURN(storage_,
                   backend.Allocate(angles.num_elements() * SizeOf(shape.gradient_dtype())));
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
  GatherRows(context, rotary.rows(), context.device.global_slots.data(), angles_.dim(0), angles_);
}

absl::Status AttentionPlans::Allocate(const NetworkShape& shape, kernels::Backend& backend) {
  const int64_t most_tables = shape.model.relative_positions() ? 2 : 0;
  for (int64_t layer = 0; layer < shape.model.num_layers; ++layer) {
    const Arrangement arrangement = ArrangementOf(shape, layer);
    is_used_[arrangement] = true;
    plans_[arrangement].shape = shape.AttentionShapeOf(layer, most_tables);
  }
  is_used_[kGlobalSlots] = shape.has_global_rows(0);
  plans_[kGlobalSlots].shape = shape.GlobalAttentionShape();

  std::array<int64_t, kArrangements + 1> begins = {};
  for (int i = 0; i < kArrangements; ++i) {
    const int64_t bytes =
        is_used_[i] ? backend.AttentionPlanBytes(plans_[i].shape, shape.dtype()) : 0;
    begins[i + 1] = begins[i] + AlignedBytes(bytes);
  }
  if (begins.back() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(storage_, backend.Allocate(begins.back()));
  for (int i = 0; i < kArrangements; ++i) {
    const int64_t bytes = begins[i + 1] - begins[i];
    if (bytes == 0) continue;
    plans_[i].memory =
        TensorView(static_cast<char*>(storage_->data()) + begins[i], DType::kUint8, Shape{bytes});
  }
  return absl::OkStatus();
}

void AttentionPlans::Prepare(const StepContext& context, const PositionTables& relative,
                             const GlobalSlots& globals) {
  const NetworkShape& shape = context.shape;
  const kernels::RowVisibility rows = context.device.rows();
  for (int64_t layer = 0; layer < shape.model.num_layers; ++layer) {
    const Arrangement arrangement = ArrangementOf(shape, layer);
    const int64_t first = shape.first_row(layer);
    const bool global_rows = shape.has_global_rows(layer);
    kernels::AttentionPlan& plan = plans_[arrangement];
    plan.shape = shape.AttentionShapeOf(layer, relative.num_tables());
    plan.min_distance = relative.num_tables() > 0 ? shape.batch.min_distance : 0;
    plan.rows = {rows.pos + first,
                 global_rows ? globals.local_lim() : rows.lim + first,
                 global_rows ? globals.local_grp() : rows.grp + first,
                 rows.doc + first,
                 rows.seg + first,
                 rows.glob + first};
  }
  plans_[kGlobalSlots].rows = globals.rows();
  for (int i = 0; i < kArrangements; ++i) {
    kernels::AttentionPlan& plan = plans_[i];
    plan.dtype = shape.dtype();
    plan.keys = context.device.keys();
    plan.is_for_backward = context.learns();
    if (is_used_[i] && !plan.memory.is_null()) context.backend.PlanAttention(plan, context.stream);
  }
}

void AttentionPlans::SetInputs(Arrangement arrangement, kernels::AttentionInputs* in) const {
  const kernels::AttentionPlan& plan = plans_[arrangement];
  in->shape = plan.shape;
  in->min_distance = plan.min_distance;
  in->rows = plan.rows;
  in->keys = plan.keys;
  if (!plan.memory.is_null()) in->plan = &plan;
}

absl::Status AttentionTables::Allocate(const NetworkShape& shape, DeviceInputs& inputs,
                                       kernels::Backend& backend) {
  ASSIGN_OR_RETURN(windows, AttentionWindows(shape.model));
  bands = {shape.model.num_layers * shape.model.num_heads, inputs};
  RETURN_IF_ERROR(relative.Allocate(shape, inputs, backend));
  RETURN_IF_ERROR(rotary.Allocate(shape, backend));
  RETURN_IF_ERROR(bias.Allocate(shape, backend));
  RETURN_IF_ERROR(globals.Allocate(shape, inputs, backend));
  return plans.Allocate(shape, backend);
}

double AttentionTables::SeenShare(int64_t layer, int64_t heads, int64_t keys) const {
  if (windows.empty()) return 1;
  const auto within = [keys](int64_t reach) { return reach < 0 ? keys : reach; };
  int64_t seen = 0;
  for (int64_t head = layer * heads; head < (layer + 1) * heads; ++head) {
    const kernels::Band& band = windows[static_cast<size_t>(head)];
    seen += std::min(keys, within(band.left) + within(band.right) + 1);
  }
  return static_cast<double>(seen) / static_cast<double>(heads * keys);
}

void AttentionTables::SetInputs(const StepContext& context) {
  const std::vector<kernels::Band>& own = context.batch().bands;
  bands.Set(own.empty() ? windows : own);
  relative.SetInputs(context);
  rotary.SetInputs(context);
  globals.SetInputs(context);
}

void AttentionTables::Prepare(const StepContext& context) {
  relative.Prepare(context);
  bias.Prepare(context, context.weights.layers.front().distance_bias);
  globals.Prepare(context, rotary);
  plans.Prepare(context, relative, globals);
}

}  // namespace anyorder
