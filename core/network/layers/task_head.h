// The head of fine-tuning (Radford et al. 2018, sections 3.2 and 3.3): dropout and one dense layer
// on the last layer's state of each sequence's final token. Classes: a softmax over the outputs,
// the states of both orders of a similarity pair added before. Choices: one output a sequence,
// without bias, and a softmax over the example's choices.

#pragma once

#include <cstdint>
#include <vector>

#include "core/network/layers/operations.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class TaskHead {
 public:
  TaskHead(const NetworkShape& shape, DeviceInputs& inputs);

  // Finds the rows that it reads in the last layer's output.
  void SetInputs(const StepContext& context);

  // After LossHead::Run: losses of the lanes from activations.output, and with gradients those of
  // the head's own parameters, overwritten, and what goes to activations.dinput, added.
  void Run(const StepContext& context) const;
  // Asks for losses and logits; ReadResults after Backend::Synchronize.
  void FetchResults(const StepContext& context);
  void ReadResults(const StepContext& context);

  double loss_sum() const { return loss_sum_; }  // over lanes, of weight * loss
  // "loss_task", and "task_accuracy": lanes of positive weight whose likeliest class or choice is
  // the label, by the sum of all weights. Empty without the head.
  const std::vector<NamedSum>& sums() const { return sums_; }
  // Of each lane: its loss (0 without a label) and the likeliest class or choice, the first of
  // equals.
  const std::vector<float>& losses() const { return losses_; }
  const std::vector<int32_t>& predictions() const { return predictions_; }
  // Of each lane, its classes' or choices' logits.
  const std::vector<std::vector<float>>& logits() const { return logits_; }

 private:
  void DropStates(const StepContext& context, const TensorView& states) const;
  void RunClasses(const StepContext& context) const;
  void RunChoices(const StepContext& context) const;
  void ScatterGradients(const StepContext& context) const;

  // Where row r of lane b is among the states: lanes side by side for choices, else all first rows
  // before all second ones.
  int64_t StateOf(int64_t b, int64_t r) const {
    return has_choices_ ? b * rows_ + r : r * lanes_ + b;
  }

  const bool has_choices_;
  const int64_t lanes_;
  const int64_t rows_;  // a lane
  HeadRows states_;     // [B * rows]; all of a lane have the ids of its first row
  HostCopy fetched_losses_, fetched_logits_;
  double loss_sum_ = 0;
  std::vector<NamedSum> sums_;
  std::vector<float> losses_;
  std::vector<int32_t> predictions_;
  std::vector<std::vector<float>> logits_;
};

}  // namespace anyorder
