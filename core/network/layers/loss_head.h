// Readout: dropout, the prediction head if the model has one, the softmax over the vocabulary with
// the tied embedding and its own bias, cross-entropy. Only rows of the readout list are multiplied
// with the vocabulary.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/network/layers/adapter.h"
#include "core/network/layers/adaptive.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// From dy, the gradient of head_output, dx [targets, d], which may be dy. Overwrites the head's
// gradients; head_output is overwritten.
inline void PredictionHeadBackward(const StepContext& context, ConstTensorView x,
                                   ConstTensorView dy, TensorView dx) {
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

// The prediction head: the transform that BERT puts between the network and the tied softmax
// (Devlin et al. 2019; released run_pretraining.py), y = LayerNorm(act(x W^T + b)).
// x [targets, d] to activations.head_output.
inline void PredictionHeadForward(const StepContext& context, ConstTensorView x) {
  const Activations& a = context.activations;
  Dense(context, x, context.weights.head, context.weights.head_bias, a.head_inner);
  context.backend.ActivationForward(
      {.activation = context.shape.model.activation, .x = a.head_inner, .y = a.head_norm.sum},
      context.stream);
  NormForward(context, {context.weights.head_norm, a.head_norm}, a.head_output);
}

class LossHead {
 public:
  LossHead(const NetworkShape& shape, DeviceInputs& inputs)
      : adaptive_(shape, inputs),
        rows_(shape.num_targets(), inputs),
        first_loss_(shape.batch.task_rows > 0 ? 1 : 0),
        losses_(static_cast<size_t>(shape.num_targets())) {
    const std::vector<std::string>& names = shape.batch.loss_names;
    for (size_t i = static_cast<size_t>(first_loss_); i < names.size(); ++i)
      sums_.push_back({absl::StrCat("loss_", names[i])});
  }

  // Finds the readout's rows in the last layer's output.
  void SetInputs(const StepContext& context) {
    const Batch& batch = context.batch();
    contiguous_ = context.shape.num_rows(context.shape.model.num_layers - 1) == rows_.size();
    for (int64_t i = 0; i < rows_.size(); ++i) {
      const int32_t row = batch.readout_rows[i];
      contiguous_ = rows_.Set(context, i, row, row) == i && contiguous_;
    }
    rows_.Send();
    adaptive_.SetInputs(batch);
  }

  // Losses of the readout entries from activations.output. With gradients also activations.dinput
  // (gradient of the last layer's output) and the sums in embedding and softmax bias.
  void Run(const StepContext& context) const {
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
  // Asks for the losses; ReadLosses after Backend::Synchronize.
  void FetchLosses(const StepContext& context) {
    if (losses_.empty()) return;
    fetched_.Fetch(context.activations.losses, context.backend, context.stream);
  }
  void ReadLosses(const StepContext& context) {
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
  // Weighted sum, and what it is made of, [B * targets]; entries of weight 0 are 0.
  double loss_sum() const { return loss_sum_; }
  const std::vector<float>& losses() const { return losses_; }
  // "loss_NAME" of each of BatchShape::loss_names, but the task head's.
  const std::vector<NamedSum>& sums() const { return sums_; }
  // The readout is the whole output in order, which saves operations.
  bool is_contiguous() const { return contiguous_; }

 private:
  AdaptiveSoftmax adaptive_;
  HeadRows rows_;
  bool contiguous_ = false;  // the readout is the whole output in order: no gather
  HostCopy fetched_;
  double loss_sum_ = 0;
  const int32_t first_loss_;  // of Batch::loss_ids: behind the task head's, if there is one
  std::vector<NamedSum> sums_;
  std::vector<float> losses_;
};

}  // namespace anyorder
