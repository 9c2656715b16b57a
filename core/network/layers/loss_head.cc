#include "core/network/layers/loss_head.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/network/layers/prediction_head.h"

namespace anyorder {

LossHead::LossHead(const NetworkShape& shape, DeviceInputs& inputs)
    : adaptive_(shape, inputs),
      output_rows_(shape.num_targets(), inputs),
      row_ids_(shape.num_targets(), inputs),
      first_loss_(shape.batch.task_rows > 0 ? 1 : 0),
      losses_(static_cast<size_t>(shape.num_targets())) {
  const std::vector<std::string>& names = shape.batch.loss_names;
  for (size_t i = static_cast<size_t>(first_loss_); i < names.size(); ++i)
    sums_.push_back({absl::StrCat("loss_", names[i])});
}

void LossHead::SetInputs(const StepContext& context) {
  const Batch& batch = context.batch();
  const NetworkShape& shape = context.shape;
  const int64_t last = shape.model.num_layers - 1;
  const auto first = static_cast<int32_t>(shape.first_row(last));
  const int64_t num_rows = shape.num_rows(last);
  contiguous_ = num_rows == shape.num_targets();
  for (size_t i = 0; i < output_rows_.host.size(); ++i) {
    const int32_t row = batch.readout_rows[i] - first;
    ANYORDER_CHECK(row >= 0 && row < num_rows)
        << "readout row " << batch.readout_rows[i] << " is not among the " << num_rows
        << " rows from " << first << " that the last layer computes";
    output_rows_.host[i] = row;
    row_ids_.host[i] = batch.row_ids[batch.readout_rows[i]];
    contiguous_ = contiguous_ && row == static_cast<int32_t>(i);
  }
  output_rows_.Set();
  row_ids_.Set();
  adaptive_.SetInputs(batch);
}

void LossHead::FetchLosses(const StepContext& context) {
  if (losses_.empty()) return;
  fetched_.Fetch(context.activations.losses, context.backend, context.stream);
}

void LossHead::ReadLosses(const StepContext& context) {
  const Batch& batch = context.batch();
  loss_sum_ = 0;
  for (NamedSum& sum : sums_)
    sum.sum = sum.weight = 0;
  for (size_t i = 0; i < losses_.size(); ++i) {
    const double loss = fetched_.At(static_cast<int64_t>(i));
    losses_[i] = static_cast<float>(loss);
    const double weight = batch.weights[i];
    loss_sum_ += weight * loss;
    if (sums_.empty()) continue;
    NamedSum& sum = sums_[static_cast<size_t>(batch.loss_ids[i] - first_loss_)];
    sum.sum += weight * loss;
    sum.weight += weight;
  }
}

void LossHead::ClearWithoutTargets(const StepContext& context, const NetworkGradients& gradients) {
  for (const TensorView& view : {context.activations.dinput, gradients.head, gradients.head_bias,
                                 gradients.head_norm_gamma, gradients.head_norm_beta}) {
    if (!view.is_null()) context.backend.FillZero(view, context.stream);
  }
}

void LossHead::RunSoftmax(const StepContext& context, const NetworkWeights& weights,
                          const NetworkGradients* gradients, ConstTensorView x, TensorView dx) {
  kernels::LinearCrossEntropyArgs args;
  args.x = x;
  args.weight = weights.embedding;
  args.bias = weights.softmax_bias;
  args.labels = context.device.labels();
  args.row_weights = context.device.weights();
  args.loss = context.activations.losses;
  args.workspace = context.activations.workspace;
  if (gradients != nullptr) {
    args.dx = dx;
    args.dweight = gradients->embedding;
    args.dbias = gradients->softmax_bias;
  }
  context.backend.LinearCrossEntropy(args, context.stream);
}

void LossHead::Run(const StepContext& context, const NetworkWeights& weights,
                   const NetworkGradients* gradients) const {
  if (losses_.empty()) {
    if (gradients != nullptr) ClearWithoutTargets(context, *gradients);
    return;
  }
  kernels::Backend& backend = context.backend;
  Activations& a = context.activations;
  const kernels::Dropout dropout = context.ReadoutDropout(kReadoutSite);
  TensorView rows = a.output;
  if (!contiguous_) {
    backend.GatherRows({.x = a.output,
                        .rows = output_rows_.data(),
                        .num_rows = static_cast<int64_t>(output_rows_.host.size()),
                        .y = a.readout},
                       context.stream);
    rows = a.readout;
  }
  if (dropout.enabled()) {
    backend.DropoutApply(
        {.x = rows, .dropout = dropout, .row_ids = row_ids_.data(), .y = a.readout},
        context.stream);
    rows = a.readout;
  }
  const bool has_head = context.shape.model.mlm_head;
  if (has_head) PredictionHeadForward(context, weights, rows);
  // The gradient goes straight to its place where the readout is the whole output.
  const TensorView dinput = Rows(a.dinput, 0, a.output.dim(0));
  const TensorView dreadout = contiguous_ ? dinput : a.dreadout;
  const ConstTensorView x = has_head ? a.head_output : rows;
  const TensorView dx = has_head ? a.dreadout : dreadout;
  if (context.shape.model.adaptive()) {
    adaptive_.Run(context, weights, gradients, x, dx);
  } else {
    RunSoftmax(context, weights, gradients, x, dx);
  }
  if (gradients == nullptr) return;
  if (has_head) PredictionHeadBackward(context, weights, *gradients, rows, a.dreadout, dreadout);
  if (dropout.enabled()) {
    backend.DropoutApply(
        {.x = dreadout, .dropout = dropout, .row_ids = row_ids_.data(), .y = dreadout},
        context.stream);
  }
  if (contiguous_) return;
  backend.FillZero(dinput, context.stream);
  backend.GatherRows({.x = a.dreadout,
                      .rows = output_rows_.data(),
                      .num_rows = static_cast<int64_t>(output_rows_.host.size()),
                      .scatter_add = true,
                      .y = dinput},
                     context.stream);
}

}  // namespace anyorder
