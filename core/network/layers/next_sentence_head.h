// The next-sentence objective (Devlin et al. 2019, section 3.1; XLNet's ablation "+
// next-sentence"): does segment B follow segment A in the text? The state of CLS goes through
// dropout, a dense layer with tanh, dropout and a dense layer of two classes: XLNet's sequence
// classification, so that an export carries the head on.

#pragma once

#include <cstdint>
#include <vector>

#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class NextSentenceHead {
 public:
  NextSentenceHead(const NetworkShape& shape, DeviceInputs& inputs);

  // Finds the entries' rows in the last layer's output.
  void SetInputs(const StepContext& context);

  // After LossHead::Run: losses of the lanes' entries from activations.output, and with gradients
  // those of the head's own parameters, overwritten, and what goes to activations.dinput, added.
  void Run(const StepContext& context, const NetworkWeights& weights,
           const NetworkGradients* gradients) const;
  // Asks for the losses; ReadLosses after Backend::Synchronize.
  void FetchLosses(const StepContext& context);
  void ReadLosses(const StepContext& context);
  // Over lanes whose entry has a weight: how many they are, the sum of their losses, not weighted,
  // and how many were told right: the likelier class is the label.
  double num_entries() const { return num_entries_; }
  double loss_sum() const { return loss_sum_; }
  double num_correct() const { return num_correct_; }

 private:
  void Forward(const StepContext& context, const NetworkWeights& weights) const;
  void Backward(const StepContext& context, const NetworkWeights& weights,
                const NetworkGradients& gradients) const;

  ComputedArray<int32_t> output_rows_;  // [B] rows of activations.output
  ComputedArray<int32_t> row_ids_;      // [B] their logical ids
  HostCopy fetched_;
  double num_entries_ = 0;
  double loss_sum_ = 0;
  double num_correct_ = 0;
};

}  // namespace anyorder
