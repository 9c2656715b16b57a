#include "core/network/heads/class_head.h"

#include <algorithm>

#include "core/network/layers/adapter.h"

namespace anyorder {

ClassHead::ClassHead(const NetworkShape& shape, DeviceInputs& inputs)
    : TaskHead(shape),
      has_choices_(shape.model.task.has_choices()),
      has_score_(shape.model.task.has_score()),
      states_(lanes_ * rows_, inputs) {}

void ClassHead::SetInputs(const StepContext& context) {
  const Batch& batch = context.batch();
  for (int64_t b = 0; b < lanes_; ++b) {
    for (int64_t r = 0; r < rows_; ++r)
      states_.Set(context, StateOf(b, r), batch.task_rows[b * rows_ + r],
                  batch.task_rows[b * rows_]);
  }
  states_.Send();
}

void ClassHead::RunRows(const StepContext& context) const {
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

// The sum of each lane's states stands in place of its first one.
TensorView ClassHead::Pool(const StepContext& context) const {
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

void ClassHead::Backward(const StepContext& context, const TensorView& read) const {
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

TaskResult ClassHead::ResultOf(const StepContext& context, int64_t b) const {
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

}  // namespace anyorder
