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

#include <algorithm>

#include "core/network/heads/task_head.h"
#include "core/network/layers/adapter.h"

namespace anyorder {
namespace {

class ClassHead final : public TaskHead {
 public:
  ClassHead(const NetworkShape& shape, DeviceInputs& inputs)
      : TaskHead(shape),
        has_choices_(shape.model.task.has_choices()),
        has_score_(shape.model.task.has_score()),
        states_(lanes_ * rows_, inputs) {}

  void SetInputs(const StepContext& context) override {
    const Batch& batch = context.batch();
    for (int64_t b = 0; b < lanes_; ++b) {
      for (int64_t r = 0; r < rows_; ++r)
        states_.Set(context, StateOf(b, r), batch.task_rows[b * rows_ + r],
                    batch.task_rows[b * rows_]);
    }
    states_.Send();
  }

 private:
  void RunRows(const StepContext& context) const override {
    const TaskActivations& a = context.activations.task;
    const DeviceBatch& device = context.device;
    const TaskConfig& task = context.shape.model.task;
    const TensorView read = Pool(context);
    Dense(context, read, context.weights.task.out, context.weights.task.out_bias, a.logits);
    kernels::HeadLossArgs loss{.row_weights = device.task_weights.data(), .loss = a.losses};
    const Shape lanes{lanes_, a.logits.num_elements() / lanes_};
    loss.logits = a.logits.Reshape(lanes);
    if (context.learns()) loss.dlogits = a.dlogits.Reshape(lanes);
    if (has_score_) {
      loss.kind = kernels::HeadLossKind::kSquaredError;
      loss.targets = device.task_scores.data();
    } else {
      loss.labels = device.task_labels.data();
      if (has_choices_) loss.valid = device.task_valid.data();
      if (context.args.training) loss.smoothing = task.label_smoothing;
    }
    context.backend.HeadLoss(loss, context.stream);
    if (context.learns()) Backward(context, read);
  }

  TaskResult ResultOf(const StepContext& context, int64_t b) const override {
    const Batch& batch = context.batch();
    const int64_t columns = logits_.view().num_elements() / lanes_;
    TaskResult result;
    result.loss = losses_.At(b);
    for (int64_t i = 0; i < columns; ++i) {
      if (has_choices_ && batch.task_valid[b * rows_ + i] == 0) continue;
      result.logits.push_back(static_cast<float>(logits_.At(b * columns + i)));
    }
    const auto best = std::max_element(result.logits.begin(), result.logits.end());
    if (has_score_ || batch.task_weights[b] == 0) return result;
    result.num_judged = 1;
    result.num_correct = best - result.logits.begin() == batch.task_labels[b] ? 1 : 0;
    return result;
  }

  // What the last layer reads, in a tensor of the activations: the sum of each lane's states stands
  // in place of its first one.
  TensorView Pool(const StepContext& context) const {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    states_.Gather(context, a.states);
    const TensorView states = Rows(a.states, 0, num_read());
    for (int64_t r = 1; r < rows_ && !has_choices_; ++r)
      context.backend.Add(states, Rows(a.states, r * lanes_, lanes_), states, context.stream);
    if (!context.shape.model.task.pooler) {
      DropRows(context, context.TaskDropout(kTaskSite), states_.ids(), states);
      return states;
    }
    DropRows(context, context.ReadoutDropout(kReadoutSite), states_.ids(), states);
    Dense(context, states, w.pooler, w.pooler_bias, a.inner);
    TanhForward(context, a.inner, a.hidden, context.TaskDropout(kTaskSite), states_.ids());
    return a.hidden;
  }

  // From dlogits.
  void Backward(const StepContext& context, const TensorView& read) const {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    const TaskTensors<TensorView>& g = context.gradients.task;
    const TensorView dstates = Rows(a.dstates, 0, num_read());
    const kernels::Dropout dropout = context.TaskDropout(kTaskSite);
    if (!context.shape.model.task.pooler) {
      DenseBackward(context, read, a.dlogits, {w.out}, {g.out, g.out_bias}, 0, dstates);
      DropRows(context, dropout, states_.ids(), dstates);
    } else {
      DenseBackward(context, read, a.dlogits, {w.out}, {g.out, g.out_bias}, 0, a.dhidden);
      TanhBackward(context, a.inner, a.dhidden, dropout, states_.ids());
      DenseBackward(context, Rows(a.states, 0, num_read()), a.dhidden, {w.pooler},
                    {g.pooler, g.pooler_bias}, 0, dstates);
      DropRows(context, context.ReadoutDropout(kReadoutSite), states_.ids(), dstates);
    }
    // Rows of one call are all different; states that were added share their gradient.
    for (int64_t r = 0; r * num_read() < lanes_ * rows_; ++r)
      states_.AddGradients(context, dstates, r * num_read());
  }

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

}  // namespace

std::unique_ptr<TaskHead> MakeClassHead(const NetworkShape& shape, DeviceInputs& inputs) {
  return std::make_unique<ClassHead>(shape, inputs);
}

}  // namespace anyorder
