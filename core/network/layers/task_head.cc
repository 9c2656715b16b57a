#include "core/network/layers/task_head.h"

#include <algorithm>

#include "core/network/layers/operations.h"

namespace anyorder {

TaskHead::TaskHead(const NetworkShape& shape, DeviceInputs& inputs)
    : has_choices_(shape.model.task.has_choices()),
      lanes_(shape.batch.batch_size),
      rows_(shape.batch.task_rows),
      states_(lanes_ * rows_, inputs),
      losses_(rows_ > 0 ? static_cast<size_t>(lanes_) : 0),
      predictions_(losses_.size()),
      logits_(losses_.size()) {
  if (rows_ > 0) sums_ = {{"loss_task"}, {"task_accuracy"}};
}

void TaskHead::Run(const StepContext& context) const {
  if (context.learns()) Clear(context, {context.gradients.task, context.gradients.task_bias});
  if (rows_ == 0) return;
  states_.Gather(context, context.activations.task_states);
  if (has_choices_) {
    RunChoices(context);
  } else {
    RunClasses(context);
  }
  if (context.learns()) ScatterGradients(context);
}

void TaskHead::SetInputs(const StepContext& context) {
  const Batch& batch = context.batch();
  for (int64_t b = 0; b < lanes_; ++b) {
    for (int64_t r = 0; r < rows_; ++r)
      states_.Set(context, StateOf(b, r), batch.task_rows[b * rows_ + r],
                  batch.task_rows[b * rows_]);
  }
  states_.Send();
}

void TaskHead::DropStates(const StepContext& context, const TensorView& states) const {
  DropRows(context, context.TaskDropout(kTaskSite), states_.ids(), states);
}

// The sum of each lane's states stands in place of its first one.
void TaskHead::RunClasses(const StepContext& context) const {
  const Activations& a = context.activations;
  const NetworkWeights& weights = context.weights;
  const TensorView states = Rows(a.task_states, 0, lanes_);
  const TensorView dstates = Rows(a.dtask_states, 0, lanes_);
  for (int64_t r = 1; r < rows_; ++r)
    context.backend.Add(states, Rows(a.task_states, r * lanes_, lanes_), states, context.stream);
  DropStates(context, states);
  Dense(context, states, weights.task, weights.task_bias, a.task_logits);
  SoftmaxLosses(context, {.x = states,
                          .weight = weights.task,
                          .bias = weights.task_bias,
                          .labels = context.device.task_labels.data(),
                          .row_weights = context.device.task_weights.data(),
                          .loss = a.task_losses,
                          .dx = dstates,
                          .dweight = context.gradients.task,
                          .dbias = context.gradients.task_bias});
  if (context.learns()) DropStates(context, dstates);
}

// A softmax over the states of one lane is that of a linear layer whose rows are the states and
// whose one input is the head's weight; so the kernel's gradient of its input is the weight's, and
// that of its weight is the states'.
void TaskHead::RunChoices(const StepContext& context) const {
  const Activations& a = context.activations;
  DropStates(context, a.task_states);
  Dense(context, a.task_states, context.weights.task, {}, a.task_logits);
  if (context.learns()) context.backend.FillZero(a.dtask_sums, context.stream);
  for (int64_t b = 0; b < lanes_; ++b) {
    const int64_t choices = context.batch().task_choices[b];
    SoftmaxLosses(context, {.x = context.weights.task,
                            .weight = Rows(a.task_states, b * rows_, choices),
                            .labels = context.device.task_labels.data() + b,
                            .row_weights = context.device.task_weights.data() + b,
                            .loss = a.task_losses.Slice(b, {1}),
                            .dx = Rows(a.dtask_weights, b, 1),
                            .dweight = Rows(a.dtask_sums, b * rows_, choices)});
  }
  if (!context.learns()) return;
  const TensorView& task = context.gradients.task;
  context.backend.ColumnSum({.x = a.dtask_weights, .y = task.Slice(0, {task.dim(1)})},
                            context.stream);
  context.backend.Cast(a.dtask_sums, a.dtask_states, context.stream);
  DropStates(context, a.dtask_states);
}

// Rows of one call are all different; states that were added share their gradient.
void TaskHead::ScatterGradients(const StepContext& context) const {
  const Activations& a = context.activations;
  const int64_t calls = has_choices_ ? 1 : rows_;
  const int64_t rows = has_choices_ ? lanes_ * rows_ : lanes_;
  for (int64_t call = 0; call < calls; ++call)
    states_.AddGradients(context, Rows(a.dtask_states, 0, rows), call * rows);
}

void TaskHead::FetchResults(const StepContext& context) {
  if (rows_ == 0) return;
  fetched_losses_.Fetch(context.activations.task_losses, context.backend, context.stream);
  fetched_logits_.Fetch(context.activations.task_logits, context.backend, context.stream);
}

void TaskHead::ReadResults(const StepContext& context) {
  if (rows_ == 0) return;
  loss_sum_ = 0;
  double weights = 0, correct = 0;
  const Batch& batch = context.batch();
  for (int64_t b = 0; b < lanes_; ++b) {
    const int64_t outputs = has_choices_ ? batch.task_choices[b] : fetched_logits_.view().dim(1);
    const int64_t first = b * (has_choices_ ? rows_ : outputs);
    std::vector<float>& logits = logits_[b];
    logits.resize(static_cast<size_t>(outputs));
    for (int64_t i = 0; i < outputs; ++i)
      logits[i] = static_cast<float>(fetched_logits_.At(first + i));
    predictions_[b] =
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const double loss = fetched_losses_.At(b);
    const auto weight = static_cast<double>(batch.task_weights[b]);
    losses_[b] = static_cast<float>(loss);
    loss_sum_ += weight * loss;
    weights += weight;
    if (weight > 0 && predictions_[b] == batch.task_labels[b]) correct += 1;
  }
  sums_ = {{"loss_task", loss_sum_, weights}, {"task_accuracy", correct, weights}};
}

}  // namespace anyorder
