#include "core/network/layers/attention_tables.h"

#include "core/base/status.h"
#include "core/config/attention_windows.h"

namespace anyorder {

absl::Status AttentionTables::Allocate(const NetworkShape& shape, DeviceInputs& inputs,
                                       kernels::Backend& backend) {
  ANYORDER_ASSIGN_OR_RETURN(windows, AttentionWindows(shape.model));
  bands = {shape.model.num_layers * shape.model.num_heads, inputs};
  ANYORDER_RETURN_IF_ERROR(relative.Allocate(shape, inputs, backend));
  ANYORDER_RETURN_IF_ERROR(rotary.Allocate(shape, backend));
  ANYORDER_RETURN_IF_ERROR(bias.Allocate(shape, backend));
  ANYORDER_RETURN_IF_ERROR(globals.Allocate(shape, inputs, backend));
  return plans.Allocate(shape, backend);
}

void AttentionTables::SetInputs(const StepContext& context) {
  const std::vector<kernels::Band>& own = context.batch().bands;
  bands.Set(own.empty() ? windows : own);
  relative.SetInputs(context);
  rotary.SetInputs(context);
  globals.SetInputs(context);
}

void AttentionTables::Prepare(const StepContext& context, const NetworkWeights& weights) {
  relative.Prepare(context);
  bias.Prepare(context, weights.layers.front().distance_bias);
  globals.Prepare(context, rotary);
  plans.Prepare(context, relative, globals);
}

}  // namespace anyorder
