#include "core/network/layers/loss_head.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/network/layers/prediction_head.h"

namespace anyorder {

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

void LossHead::FetchLosses(const StepContext& context) {
  if (losses_.empty()) return;
  fetched_.Fetch(context.activations.losses, context.backend, context.stream);
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
  Activations& a = context.activations;
  const kernels::Dropout dropout = context.ReadoutDropout(kReadoutSite);
  TensorView rows = a.output;
  if (!contiguous_) {
    rows_.Gather(context, a.readout);
    rows = a.readout;
  }
  rows_.Drop(context, dropout, rows, a.readout);
  if (dropout.enabled()) rows = a.readout;
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
  rows_.Drop(context, dropout, dreadout, dreadout);
  if (contiguous_) return;
  context.backend.FillZero(dinput, context.stream);
  rows_.AddGradients(context, a.dreadout);
}

}  // namespace anyorder
