#include "core/network/layers/attention_plans.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

AttentionPlans::Arrangement AttentionPlans::ArrangementOf(const NetworkShape& shape,
                                                          int64_t layer) {
  return shape.first_row(layer) == 0 ? kAllRows : kQueryRows;
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
    begins[i + 1] = begins[i] + (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (begins.back() == 0) return absl::OkStatus();
  ANYORDER_ASSIGN_OR_RETURN(storage_, backend.Allocate(begins.back()));
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

void AttentionPlans::SetInputsOfLayer(const NetworkShape& shape, int64_t layer,
                                      kernels::AttentionInputs* in) const {
  SetInputs(ArrangementOf(shape, layer), in);
}

void AttentionPlans::SetInputsOfGlobals(kernels::AttentionInputs* in) const {
  SetInputs(kGlobalSlots, in);
}

}  // namespace anyorder
