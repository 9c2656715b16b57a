#include "core/model/attention_tables.h"

#include "core/base/status.h"
#include "core/model/attention_windows.h"

namespace anyorder {

absl::Status AttentionTables::Allocate(const NetworkShape& shape, kernels::Backend& backend) {
  ANYORDER_ASSIGN_OR_RETURN(bands, AttentionWindows(shape.model));
  ANYORDER_RETURN_IF_ERROR(relative.Allocate(shape, backend));
  ANYORDER_RETURN_IF_ERROR(rotary.Allocate(shape, backend));
  ANYORDER_RETURN_IF_ERROR(bias.Allocate(shape, backend));
  return globals.Allocate(shape, backend);
}

void AttentionTables::Prepare(const StepContext& context, const NetworkWeights& weights) {
  relative.Prepare(context);
  rotary.Prepare(context);
  bias.Prepare(context, weights.layers.front().distance_bias);
  globals.Prepare(context, rotary);
}

}  // namespace anyorder
