// The next-sentence objective (Devlin et al. 2019, section 3.1; XLNet's ablation "+
// next-sentence"): does segment B follow segment A in the text? The state of CLS goes through
// dropout, a dense layer with tanh, dropout and a dense layer of two classes: XLNet's sequence
// classification, so that an export carries the head on.

#pragma once

#include <vector>

#include "core/network/layers/operations.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class NextSentenceHead {
 public:
  NextSentenceHead(const NetworkShape& shape, DeviceInputs& inputs);

  // Finds the entries' rows in the last layer's output.
  void SetInputs(const StepContext& context);

  // After LossHead::Run: losses of the lanes' entries from activations.output, and with gradients
  // those of the head's own parameters, overwritten, and what goes to activations.dinput, added.
  void Run(const StepContext& context) const;
  // Asks for the losses; ReadLosses after Backend::Synchronize.
  void FetchLosses(const StepContext& context) {
    if (rows_.size() == 0) return;
    fetched_.Fetch(context.activations.summary_losses, context.backend, context.stream);
  }
  void ReadLosses(const StepContext& context);
  // "nsp_loss" and "nsp_accuracy" over lanes whose entry has a weight: their losses, not weighted
  // and no part of the step's loss (their gradient, weighted, is part of the gradient), and how
  // many labels were the likelier class. Empty without the head.
  const std::vector<NamedSum>& sums() const { return sums_; }

 private:
  HeadRows rows_;  // one a lane
  HostCopy fetched_;
  std::vector<NamedSum> sums_;
};

}  // namespace anyorder
