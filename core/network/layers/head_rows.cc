#include "core/network/layers/head_rows.h"

#include "core/base/check.h"

namespace anyorder {

int32_t HeadRows::Set(const StepContext& context, int64_t entry, int32_t row, int32_t id_row) {
  const int64_t last = context.shape.model.num_layers - 1;
  const auto first = static_cast<int32_t>(context.shape.first_row(last));
  const int32_t output_row = row - first;
  ANYORDER_CHECK(output_row >= 0 && output_row < context.shape.num_rows(last))
      << "row " << row << " of a head is not among the " << context.shape.num_rows(last)
      << " rows from " << first << " that the last layer computes";
  rows_.host[entry] = output_row;
  ids_.host[entry] = context.batch().row_ids[id_row];
  return output_row;
}

void HeadRows::Send() {
  rows_.Set();
  ids_.Set();
}

void HeadRows::Gather(const StepContext& context, TensorView y) const {
  context.backend.GatherRows(
      {.x = context.activations.output, .rows = rows_.data(), .num_rows = size(), .y = y},
      context.stream);
}

void HeadRows::Drop(const StepContext& context, const kernels::Dropout& dropout, ConstTensorView x,
                    TensorView y) const {
  if (!dropout.enabled()) return;
  context.backend.DropoutApply({.x = x, .dropout = dropout, .row_ids = ids_.data(), .y = y},
                               context.stream);
}

void HeadRows::AddGradients(const StepContext& context, ConstTensorView dy, int64_t first) const {
  const Activations& a = context.activations;
  context.backend.GatherRows({.x = dy,
                              .rows = rows_.data() + first,
                              .num_rows = dy.dim(0),
                              .scatter_add = true,
                              .y = Rows(a.dinput, 0, a.output.dim(0))},
                             context.stream);
}

}  // namespace anyorder
