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
  void Run(const StepContext& context) const;
  // Asks for what the host is to know; ReadResults after Backend::Synchronize, which in evaluation
  // may queue more and wait again.
  void FetchResults(const StepContext& context);
  void ReadResults(const StepContext& context);

  double loss_sum() const { return loss_sum_; }  // over lanes, of weight * loss
  // "loss_task", and but for scores "task_accuracy": TaskResult::num_correct by num_judged. Empty
  // without task rows.
  const std::vector<NamedSum>& sums() const { return sums_; }
  const std::vector<TaskResult>& results() const { return results_; }  // [B], or empty

 protected:
  explicit TaskHead(const NetworkShape& shape);

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
  void SumUp(const Batch& batch);

  std::vector<TaskResult> results_;
  double loss_sum_ = 0;
  std::vector<NamedSum> sums_;
};

// Each in a file of its name, which says what it is.
std::unique_ptr<TaskHead> MakeClassHead(const NetworkShape& shape, DeviceInputs& inputs);
std::unique_ptr<TaskHead> MakeSpanHead(const NetworkShape& shape, DeviceInputs& inputs);
std::unique_ptr<TaskHead> MakeTagHead(const NetworkShape& shape, DeviceInputs& inputs);

}  // namespace anyorder
