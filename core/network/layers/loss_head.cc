#include "core/network/layers/loss_head.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/network/layers/adapter.h"

namespace anyorder {

namespace {

// From dy, the gradient of head_output, dx [targets, d], which may be dy. Overwrites the head's
// gradients; head_output is overwritten.
void PredictionHeadBackward(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                            TensorView dx) {
  const Activations& a = context.activations;
  const NetworkGradients& gradients = context.gradients;
  const TensorView dinner = a.head_output;
  NormBackward(context, {context.weights.head_norm, a.head_norm}, gradients.head_norm, dy, dinner);
  context.backend.ActivationBackward(
      {.activation = context.shape.model.activation, .x = a.head_inner, .dy = dinner, .dx = dinner},
      context.stream);
  DenseBackward(context, x, dinner, {context.weights.head}, {gradients.head, gradients.head_bias},
                0, dx);
}

}  // namespace

void PredictionHeadForward(const StepContext& context, ConstTensorView x) {
  const Activations& a = context.activations;
  Dense(context, x, context.weights.head, context.weights.head_bias, a.head_inner);
  context.backend.ActivationForward(
      {.activation = context.shape.model.activation, .x = a.head_inner, .y = a.head_norm.sum},
      context.stream);
  NormForward(context, {context.weights.head_norm, a.head_norm}, a.head_output);
}

LossHead::LossHead(const NetworkShape& shape, DeviceInputs& inputs)
    : adaptive_(shape, inputs),
      rows_(shape.num_targets(), inputs),
      first_loss_(shape.batch.task_rows > 0 ? 1 : 0),
      losses_(static_cast<size_t>(shape.num_targets())) {
  const std::vector<std::string>& names = shape.batch.loss_names;
  for (size_t i = static_cast<size_t>(first_loss_); i < names.size(); ++i)
    sums_.push_back({absl::StrCat("loss_", names[i])});
}

void LossHead::SetInputs(const StepContext& context) {
  const Batch& batch = context.batch();
  contiguous_ = context.shape.num_rows(context.shape.model.num_layers - 1) == rows_.size();
  for (int64_t i = 0; i < rows_.size(); ++i) {
    const int32_t row = batch.readout_rows[i];
    contiguous_ = rows_.Set(context, i, row, row) == i && contiguous_;
  }
  rows_.Send();
  adaptive_.SetInputs(batch);
}

void LossHead::ReadLosses(const StepContext& context) {
  const Batch& batch = context.batch();
  loss_sum_ = 0;
  for (NamedSum& sum : sums_) sum.sum = sum.weight = 0;
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

void LossHead::Run(const StepContext& context) const {
  Activations& a = context.activations;
  const NetworkWeights& weights = context.weights;
  const NetworkGradients& gradients = context.gradients;
  if (losses_.empty()) {
    if (context.learns())
      Clear(context, {a.dinput, gradients.head, gradients.head_bias, gradients.head_norm.gamma,
                      gradients.head_norm.beta});
    return;
  }
  const kernels::Dropout dropout = context.ReadoutDropout(kReadoutSite);
  TensorView rows = a.output;
  if (!contiguous_) {
    rows_.Gather(context, a.readout);
    rows = a.readout;
  }
  if (dropout.enabled()) {
    context.backend.DropoutApply(
        {.x = rows, .dropout = dropout, .row_ids = rows_.ids(), .y = a.readout}, context.stream);
    rows = a.readout;
  }
  const bool has_head = context.shape.model.mlm_head;
  if (has_head) PredictionHeadForward(context, rows);
  // The gradient goes straight to its place where the readout is the whole output.
  const TensorView dinput = Rows(a.dinput, 0, a.output.dim(0));
  const TensorView dreadout = contiguous_ ? dinput : a.dreadout;
  const ConstTensorView x = has_head ? a.head_output : rows;
  const TensorView dx = has_head ? a.dreadout : dreadout;
  if (context.shape.model.adaptive()) {
    adaptive_.Run(context, x, dx);
  } else {
    SoftmaxLosses(context, {.x = x,
                            .weight = weights.softmax(context.shape.model),
                            .bias = weights.softmax_bias,
                            .labels = context.device.labels.data(),
                            .row_weights = context.device.weights.data(),
                            .loss = a.losses,
                            .dx = dx,
                            .dweight = gradients.softmax(context.shape.model),
                            .dbias = gradients.softmax_bias});
  }
  if (!context.learns()) return;
  if (has_head) PredictionHeadBackward(context, rows, a.dreadout, dreadout);
  DropRows(context, dropout, rows_.ids(), dreadout);
  if (contiguous_) return;
  context.backend.FillZero(dinput, context.stream);
  rows_.AddGradients(context, a.dreadout);
}

}  // namespace anyorder
