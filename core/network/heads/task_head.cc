#include "core/network/heads/task_head.h"

namespace anyorder {

TaskHead::TaskHead(const NetworkShape& shape)
    : lanes_(shape.batch.batch_size),
      rows_(shape.batch.task_rows),
      results_(rows_ > 0 ? static_cast<size_t>(lanes_) : 0) {
  if (rows_ == 0) return;
  sums_ = {{"loss_task"}};
  if (!shape.model.task.has_score()) sums_.push_back({"task_accuracy"});
}

void TaskHead::Run(const StepContext& context) const {
  if (rows_ > 0) return RunRows(context);
  if (!context.learns()) return;
  const TaskTensors<TensorView>& g = context.gradients.task;
  Clear(context, {g.pooler, g.pooler_bias, g.out, g.out_bias, g.start, g.start_bias, g.end_inner,
                  g.end_inner_bias, g.end_norm.gamma, g.end_norm.beta, g.end, g.end_bias,
                  g.answer_inner, g.answer_inner_bias, g.answer, g.span, g.span_bias});
}

void TaskHead::FetchResults(const StepContext& context) {
  if (rows_ == 0) return;
  const TaskActivations& a = context.activations.task;
  logits_.Fetch(a.logits, context.backend, context.stream);
  losses_.Fetch(a.losses, context.backend, context.stream);
  FetchMore(context);
}

void TaskHead::ReadResults(const StepContext& context) {
  if (rows_ == 0) return;
  Search(context);
  for (int64_t b = 0; b < lanes_; ++b) results_[b] = ResultOf(context, b);
  SumUp(context.batch());
}

void TaskHead::SumUp(const Batch& batch) {
  loss_sum_ = 0;
  double weights = 0, judged = 0, correct = 0;
  for (int64_t b = 0; b < lanes_; ++b) {
    const auto weight = static_cast<double>(batch.task_weights[b]);
    loss_sum_ += weight * results_[b].loss;
    weights += weight;
    judged += static_cast<double>(results_[b].num_judged);
    correct += static_cast<double>(results_[b].num_correct);
  }
  sums_[0] = {"loss_task", loss_sum_, weights};
  if (sums_.size() > 1) sums_[1] = {"task_accuracy", correct, judged};
}

}  // namespace anyorder
