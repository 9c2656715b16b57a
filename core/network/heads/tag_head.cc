// The class of each word, as named entity recognition has it (Devlin et al. 2019, section 5.3;
// Hugging Face's ...ForTokenClassification): one dense layer on the state of the word's first
// token, and a softmax over the classes. The loss is the mean over all words of a step whose class
// is known; tokens that begin no word have none.

#include <algorithm>

#include "core/network/heads/task_head.h"
#include "core/network/layers/adapter.h"

namespace anyorder {
namespace {

class TagHead final : public TaskHead {
 public:
  TagHead(const NetworkShape& shape, DeviceInputs& inputs)
      : TaskHead(shape),
        num_classes_(shape.model.task.num_classes),
        states_(lanes_ * rows_, inputs),
        labels_(lanes_ * rows_, inputs),
        weights_(lanes_ * rows_, inputs) {}

  void SetInputs(const StepContext& context) override {
    if (rows_ == 0) return;
    const Batch& batch = context.batch();
    for (int64_t i = 0; i < lanes_ * rows_; ++i) {
      states_.Set(context, i, batch.task_rows[i], batch.task_rows[i]);
      labels_.host[i] = std::max(0, batch.task_tags[i]);
      weights_.host[i] = batch.task_tags[i] >= 0 ? 1.0f : 0.0f;
    }
    states_.Send();
    labels_.Set();
    weights_.Set();
  }

 private:
  void RunRows(const StepContext& context) const override {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    const TaskTensors<TensorView>& g = context.gradients.task;
    const auto drop = [&](const TensorView& rows) {
      DropRows(context, context.ReadoutDropout(kReadoutSite), states_.ids(), rows);
      DropRows(context, context.TaskDropout(kTaskSite), states_.ids(), rows);
    };
    states_.Gather(context, a.states);
    drop(a.states);
    Dense(context, a.states, w.out, w.out_bias, a.logits);
    kernels::HeadLossArgs loss{.logits = a.logits,
                               .labels = labels_.data(),
                               .row_weights = weights_.data(),
                               .loss = a.losses};
    if (context.learns()) loss.dlogits = a.dlogits;
    if (context.args.training) loss.smoothing = context.shape.model.task.label_smoothing;
    context.backend.HeadLoss(loss, context.stream);
    if (!context.learns()) return;
    DenseBackward(context, a.states, a.dlogits, {w.out}, {g.out, g.out_bias}, 0, a.dstates);
    drop(a.dstates);
    states_.AddGradients(context, a.dstates);
  }

  TaskResult ResultOf(const StepContext& context, int64_t b) const override {
    const Batch& batch = context.batch();
    TaskResult result;
    for (int64_t row = b * rows_; row < (b + 1) * rows_; ++row) {
      if (batch.task_valid[row] == 0) continue;
      for (int64_t k = 0; k < num_classes_; ++k)
        result.logits.push_back(static_cast<float>(logits_.At(row * num_classes_ + k)));
      const auto first = result.logits.end() - num_classes_;
      const auto likeliest = std::max_element(first, result.logits.end()) - first;
      result.tags.push_back(static_cast<int32_t>(likeliest));
      if (batch.task_tags[row] < 0) continue;
      ++result.num_judged;
      result.num_correct += likeliest == batch.task_tags[row] ? 1 : 0;
      result.loss += losses_.At(row);
    }
    if (result.num_judged > 0) result.loss /= static_cast<double>(result.num_judged);
    return result;
  }

  const int64_t num_classes_;
  HeadRows states_;                // [B * rows], in their order
  ComputedArray<int32_t> labels_;  // [B * rows] 0 without a tag
  ComputedArray<float> weights_;   // [B * rows] 1 with a tag, else 0
};

}  // namespace

std::unique_ptr<TaskHead> MakeTagHead(const NetworkShape& shape, DeviceInputs& inputs) {
  return std::make_unique<TagHead>(shape, inputs);
}

}  // namespace anyorder
