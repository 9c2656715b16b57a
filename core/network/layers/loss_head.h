// Readout: dropout, the prediction head if the model has one, the softmax over the vocabulary with
// the tied embedding and its own bias, cross-entropy. Only rows of the readout list are multiplied
// with the vocabulary.

#pragma once

#include <cstdint>
#include <vector>

#include "core/network/layers/adaptive.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// The prediction head: the transform that BERT puts between the network and the tied softmax
// (Devlin et al. 2019; released run_pretraining.py), y = LayerNorm(act(x W^T + b)).
// x [targets, d] to activations.head_output.
void PredictionHeadForward(const StepContext& context, ConstTensorView x);

class LossHead {
 public:
  LossHead(const NetworkShape& shape, DeviceInputs& inputs);

  // Finds the readout's rows in the last layer's output.
  void SetInputs(const StepContext& context);

  // Losses of the readout entries from activations.output. With gradients also activations.dinput
  // (gradient of the last layer's output) and the sums in embedding and softmax bias.
  void Run(const StepContext& context) const;
  // Asks for the losses; ReadLosses after Backend::Synchronize.
  void FetchLosses(const StepContext& context) {
    if (losses_.empty()) return;
    fetched_.Fetch(context.activations.losses, context.backend, context.stream);
  }
  void ReadLosses(const StepContext& context);
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
