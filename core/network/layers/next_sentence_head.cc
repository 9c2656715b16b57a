#include "core/network/layers/next_sentence_head.h"

#include <numbers>

namespace anyorder {

NextSentenceHead::NextSentenceHead(const NetworkShape& shape, DeviceInputs& inputs)
    : rows_(shape.batch.next_sentence ? shape.batch.batch_size : 0, inputs) {
  if (shape.batch.next_sentence) sums_ = {{"nsp_loss"}, {"nsp_accuracy"}};
}

void NextSentenceHead::SetInputs(const StepContext& context) {
  for (int64_t b = 0; b < rows_.size(); ++b) {
    const int32_t row = context.batch().summary_rows[b];
    rows_.Set(context, b, row, row);
  }
  rows_.Send();
}

void NextSentenceHead::Run(const StepContext& context, const NetworkWeights& weights,
                           const NetworkGradients* gradients) const {
  kernels::Backend& backend = context.backend;
  if (gradients != nullptr && !gradients->summary.is_null()) {
    for (const TensorView& view :
         {gradients->summary, gradients->summary_bias, gradients->classes, gradients->classes_bias})
      backend.FillZero(view, context.stream);
  }
  if (rows_.size() == 0) return;
  Forward(context, weights);
  kernels::LinearCrossEntropyArgs args;
  args.x = context.activations.summary_hidden;
  args.weight = weights.classes;
  args.bias = weights.classes_bias;
  args.labels = context.device.summary_labels();
  args.row_weights = context.device.summary_weights();
  args.loss = context.activations.summary_losses;
  args.workspace = context.activations.workspace;
  if (gradients != nullptr) {
    args.dx = context.activations.dsummary;
    args.dweight = gradients->classes;
    args.dbias = gradients->classes_bias;
  }
  backend.LinearCrossEntropy(args, context.stream);
  if (gradients != nullptr) Backward(context, weights, *gradients);
}

void NextSentenceHead::Forward(const StepContext& context, const NetworkWeights& weights) const {
  const Activations& a = context.activations;
  rows_.Gather(context, a.summary_input);
  // The same dropout as of other rows that are read out.
  rows_.Drop(context, context.ReadoutDropout(kReadoutSite), a.summary_input, a.summary_input);
  context.backend.Gemm({.a = a.summary_input,
                        .b = weights.summary,
                        .transpose_b = true,
                        .bias = weights.summary_bias,
                        .c = a.summary_inner},
                       context.stream);
  context.backend.ActivationForward({.activation = kernels::Activation::kTanh,
                                     .x = a.summary_inner,
                                     .dropout = context.ReadoutDropout(kSummarySite),
                                     .row_ids = rows_.ids(),
                                     .y = a.summary_hidden},
                                    context.stream);
}

void NextSentenceHead::FetchLosses(const StepContext& context) {
  if (rows_.size() == 0) return;
  fetched_.Fetch(context.activations.summary_losses, context.backend, context.stream);
}

void NextSentenceHead::ReadLosses(const StepContext& context) {
  if (sums_.empty()) return;
  double entries = 0, losses = 0, correct = 0;
  for (int64_t b = 0; b < rows_.size(); ++b) {
    if (context.batch().summary_weights[b] == 0) continue;
    const double loss = fetched_.At(b);
    entries += 1;
    losses += loss;
    // Of two classes the one with more than half of the probability wins.
    if (loss < std::numbers::ln2) correct += 1;
  }
  sums_ = {{"nsp_loss", losses, entries}, {"nsp_accuracy", correct, entries}};
}

void NextSentenceHead::Backward(const StepContext& context, const NetworkWeights& weights,
                                const NetworkGradients& gradients) const {
  kernels::Backend& backend = context.backend;
  const Activations& a = context.activations;
  backend.ActivationBackward({.activation = kernels::Activation::kTanh,
                              .x = a.summary_inner,
                              .dy = a.dsummary,
                              .dropout = context.ReadoutDropout(kSummarySite),
                              .row_ids = rows_.ids(),
                              .dx = a.dsummary},
                             context.stream);
  backend.Gemm({.a = a.dsummary,
                .b = a.summary_input,
                .transpose_a = true,
                .c = gradients.summary,
                .a_sum = gradients.summary_bias},
               context.stream);
  backend.Gemm({.a = a.dsummary, .b = weights.summary, .c = a.summary_input}, context.stream);
  rows_.Drop(context, context.ReadoutDropout(kReadoutSite), a.summary_input, a.summary_input);
  rows_.AddGradients(context, a.summary_input);
}

}  // namespace anyorder
