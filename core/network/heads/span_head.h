// The answer to a question as a part of a passage: where it starts and where it ends, both of which
// are CLS where no part is the answer. A softmax over the lane's valid rows, the passage's tokens
// and CLS.
//
//   conditional   (XLNet's released run_squad.py, Hugging Face's XLNetForQuestionAnswering)
//       start     one dense layer on each token's state
//       end       given a start: tanh of a dense layer on the token's and the start's states,
//                 LayerNorm, one dense layer. Training: the true start. Evaluation: the likeliest
//                 starts, for each its likeliest ends
//       answer    with an answer class: whether there is none: one dense layer on tanh of another
//                 on the start's and CLS's states. Training: the true start's. Evaluation: the
//                 states' mean by the starts' probabilities. The released code has dropout before
//                 its last layer; there is none here
//       loss = (start + end) / 2 [+ answer / 2], of softmaxes and a logistic loss
//   simple        (Devlin et al. 2019, sections 4.2 and 4.3)
//       start and end are one dense layer each; loss = (start + end) / 2. Evaluation: every pair of
//       the 20 likeliest starts and ends of the window, as in write_predictions of the released
//       run_squad.py

#pragma once

#include <cstdint>
#include <vector>

#include "core/network/heads/task_head.h"
#include "core/network/tensors/host_copy.h"

namespace anyorder {

class SpanHead final : public TaskHead {
 public:
  SpanHead(const NetworkShape& shape, DeviceInputs& inputs);

  void SetInputs(const StepContext& context) override;

 private:
  void RunRows(const StepContext& context) const override;
  void FetchMore(const StepContext& context) override;
  // Evaluation: logits of ends for CLS and the likeliest starts as starts.
  void Search(const StepContext& context) override;
  TaskResult ResultOf(const StepContext& context, int64_t b) const override;
  void RunSimple(const StepContext& context) const;
  void RunConditional(const StepContext& context) const;
  // Losses of the lanes' `labels` among their rows by `logits`, and with gradients `dlogits`.
  void Softmax(const StepContext& context, const TensorView& logits, const int32_t* labels,
               const TensorView& losses, const TensorView& dlogits) const;
  // Logits of all tokens as ends of spans that begin with the states a.starts.
  void ScoreEnds(const StepContext& context, const TensorView& logits) const;
  void EndsBackward(const StepContext& context) const;
  void RunAnswer(const StepContext& context) const;
  void AnswerBackward(const StepContext& context) const;

  void AddConditionalSpans(const Batch& batch, int64_t b, TaskResult& result) const;
  void AddSimpleSpans(const Batch& batch, int64_t b, TaskResult& result) const;
  const bool is_conditional_;
  const bool has_answer_class_;
  DeviceInputs& inputs_;
  HeadRows states_;                     // [B * rows], in their order
  ComputedArray<int32_t> lane_of_row_;  // [B * rows]
  ComputedArray<int32_t> start_rows_;   // [B] among the states, like the next
  ComputedArray<int32_t> classifier_rows_;
  std::vector<ComputedArray<int32_t>> searched_rows_;  // [kSearchedStarts] of [B], CLS first
  ComputedArray<float> half_weights_, ones_;           // [B]
  // The base has logits and losses of starts.
  HostCopy ends_, searched_, answers_;
  HostCopy end_losses_, answer_losses_;
};

}  // namespace anyorder
