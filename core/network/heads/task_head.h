// What a network that is fine-tuned learns besides its backbone: a head on the last layer's states.
// A head is one class in a file of this folder: its losses, gradients and named sums. Its
// parameters are declared in parameter_walk.h and its activations in activations.h, as those of all
// layers.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/network/heads/task_result.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class TaskHead {
 public:
  virtual ~TaskHead() = default;

  // Finds the rows that it reads in the last layer's output.
  virtual void SetInputs(const StepContext& context) = 0;
  // After LossHead::Run: losses of the lanes from activations.output, and with gradients those of
  // the head's own parameters, overwritten, and what goes to activations.dinput, added. A
  // microbatch without task rows: the gradients are zeros.
  void Run(const StepContext& context) const {
    if (rows_ > 0) return RunRows(context);
    if (!context.learns()) return;
    const TaskTensors<TensorView>& g = context.gradients.task;
    Clear(context, {g.pooler, g.pooler_bias, g.out, g.out_bias, g.start, g.start_bias, g.end_inner,
                    g.end_inner_bias, g.end_norm.gamma, g.end_norm.beta, g.end, g.end_bias,
                    g.answer_inner, g.answer_inner_bias, g.answer, g.span, g.span_bias});
  }
  // Asks for what the host is to know; ReadResults after Backend::Synchronize, which in evaluation
  // may queue more and wait again.
  void FetchResults(const StepContext& context) {
    if (rows_ == 0) return;
    const TaskActivations& a = context.activations.task;
    logits_.Fetch(a.logits, context.backend, context.stream);
    losses_.Fetch(a.losses, context.backend, context.stream);
    FetchMore(context);
  }
  void ReadResults(const StepContext& context) {
    if (rows_ == 0) return;
    Search(context);
    for (int64_t b = 0; b < lanes_; ++b) results_[b] = ResultOf(context, b);
    SumUp(context.batch());
  }

  double loss_sum() const { return loss_sum_; }  // over lanes, of weight * loss
  // "loss_task", and but for scores "task_accuracy": TaskResult::num_correct by num_judged. Empty
  // without task rows.
  const std::vector<NamedSum>& sums() const { return sums_; }
  const std::vector<TaskResult>& results() const { return results_; }  // [B], or empty

 protected:
  explicit TaskHead(const NetworkShape& shape)
      : lanes_(shape.batch.batch_size),
        rows_(shape.batch.task_rows),
        results_(rows_ > 0 ? static_cast<size_t>(lanes_) : 0) {
    if (rows_ == 0) return;
    sums_ = {{"loss_task"}};
    if (!shape.model.task.has_score()) sums_.push_back({"task_accuracy"});
  }

  // What the head is, of a microbatch with task rows: Run; what FetchResults asks for besides
  // logits and losses; a second look at the device before the results; the result of lane `b`.
  virtual void RunRows(const StepContext& context) const = 0;
  virtual void FetchMore(const StepContext&) {}
  virtual void Search(const StepContext&) {}
  virtual TaskResult ResultOf(const StepContext& context, int64_t b) const = 0;

  const int64_t lanes_;
  const int64_t rows_;        // a lane
  HostCopy logits_, losses_;  // of TaskActivations

 private:
  void SumUp(const Batch& batch) {
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

  std::vector<TaskResult> results_;
  double loss_sum_ = 0;
  std::vector<NamedSum> sums_;
};

// Each in a file of its name, which says what it is.
std::unique_ptr<TaskHead> MakeClassHead(const NetworkShape& shape, DeviceInputs& inputs);
std::unique_ptr<TaskHead> MakeSpanHead(const NetworkShape& shape, DeviceInputs& inputs);
std::unique_ptr<TaskHead> MakeTagHead(const NetworkShape& shape, DeviceInputs& inputs);

}  // namespace anyorder
