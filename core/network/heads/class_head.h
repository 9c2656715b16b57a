// Classes, choices and scores: dropout, a dense layer with tanh if there is a pooler, dropout, and
// one dense layer on the state of each sequence's CLS.
//
//   classes   a softmax over the outputs; of several rows a lane (Radford et al. 2018, section 3.3:
//             both orders of a similarity pair) the sum of the states is read
//   choices   one output a row, without bias, and a softmax over the lane's valid rows
//   a score   one output, and the square of its distance to the label (STS-B)
//
// Without pooler: GPT's (Radford et al. 2018, sections 3.2 and 3.3). With it: XLNet's and BERT's
// sequence classification and multiple choice.

#pragma once

#include <cstdint>

#include "core/network/heads/task_head.h"

namespace anyorder {

class ClassHead final : public TaskHead {
 public:
  ClassHead(const NetworkShape& shape, DeviceInputs& inputs);

  void SetInputs(const StepContext& context) override;

 private:
  void RunRows(const StepContext& context) const override;
  TaskResult ResultOf(const StepContext& context, int64_t b) const override;
  // What the last layer reads, in a tensor of the activations.
  TensorView Pool(const StepContext& context) const;
  // From dlogits.
  void Backward(const StepContext& context, const TensorView& read) const;

  // Where row r of lane b is among the states: lanes side by side for choices, else all first rows
  // before all second ones.
  int64_t StateOf(int64_t b, int64_t r) const {
    return has_choices_ ? b * rows_ + r : r * lanes_ + b;
  }
  // Rows that the last layer reads.
  int64_t num_read() const { return has_choices_ ? lanes_ * rows_ : lanes_; }

  const bool has_choices_;
  const bool has_score_;
  HeadRows states_;  // [B * rows]; all of a lane have the ids of its first row, and so one dropout
};

}  // namespace anyorder
