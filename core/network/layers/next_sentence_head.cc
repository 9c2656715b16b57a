#include "core/network/layers/next_sentence_head.h"

#include <numbers>

#include "core/base/check.h"

namespace anyorder {

NextSentenceHead::NextSentenceHead(const NetworkShape& shape, DeviceInputs& inputs)
    : output_rows_(shape.batch.next_sentence ? shape.batch.batch_size : 0, inputs),
      row_ids_(shape.batch.next_sentence ? shape.batch.batch_size : 0, inputs) {
  if (shape.batch.next_sentence) sums_ = {{"nsp_loss"}, {"nsp_accuracy"}};
}

void NextSentenceHead::SetInputs(const StepContext& context) {
  const NetworkShape& shape = context.shape;
  const int64_t last = shape.model.num_layers - 1;
  for (size_t b = 0; b < output_rows_.host.size(); ++b) {
    const int32_t row = context.batch().summary_rows[b];
    output_rows_.host[b] = row - static_cast<int32_t>(shape.first_row(last));
    ANYORDER_CHECK(output_rows_.host[b] >= 0 && output_rows_.host[b] < shape.num_rows(last))
        << "next-sentence row " << row << " is not one that the last layer computes";
    row_ids_.host[b] = context.batch().row_ids[row];
  }
  output_rows_.Set();
  row_ids_.Set();
}

void NextSentenceHead::Run(const StepContext& context, const NetworkWeights& weights,
                           const NetworkGradients* gradients) const {
  kernels::Backend& backend = context.backend;
  if (gradients != nullptr && !gradients->summary.is_null()) {
    for (const TensorView& view :
         {gradients->summary, gradients->summary_bias, gradients->classes, gradients->classes_bias})
      backend.FillZero(view, context.stream);
  }
  if (output_rows_.host.empty()) return;
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
  context.backend.GatherRows({.x = a.output,
                              .rows = output_rows_.data(),
                              .num_rows = static_cast<int64_t>(output_rows_.host.size()),
                              .y = a.summary_input},
                             context.stream);
  // The same dropout as of other rows that are read out.
  context.backend.DropoutApply({.x = a.summary_input,
                                .dropout = context.ReadoutDropout(kReadoutSite),
                                .row_ids = row_ids_.data(),
                                .y = a.summary_input},
                               context.stream);
  context.backend.Gemm({.a = a.summary_input,
                        .b = weights.summary,
                        .transpose_b = true,
                        .bias = weights.summary_bias,
                        .c = a.summary_inner},
                       context.stream);
  context.backend.ActivationForward({.activation = kernels::Activation::kTanh,
                                     .x = a.summary_inner,
                                     .dropout = context.ReadoutDropout(kSummarySite),
                                     .row_ids = row_ids_.data(),
                                     .y = a.summary_hidden},
                                    context.stream);
}

void NextSentenceHead::FetchLosses(const StepContext& context) {
  if (output_rows_.host.empty()) return;
  fetched_.Fetch(context.activations.summary_losses, context.backend, context.stream);
}

void NextSentenceHead::ReadLosses(const StepContext& context) {
  if (sums_.empty()) return;
  double entries = 0, losses = 0, correct = 0;
  for (size_t b = 0; b < output_rows_.host.size(); ++b) {
    if (context.batch().summary_weights[b] == 0) continue;
    const double loss = fetched_.At(static_cast<int64_t>(b));
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
                              .row_ids = row_ids_.data(),
                              .dx = a.dsummary},
                             context.stream);
  backend.Gemm({.a = a.dsummary,
                .b = a.summary_input,
                .transpose_a = true,
                .c = gradients.summary,
                .a_sum = gradients.summary_bias},
               context.stream);
  backend.Gemm({.a = a.dsummary, .b = weights.summary, .c = a.summary_input}, context.stream);
  backend.DropoutApply({.x = a.summary_input,
                        .dropout = context.ReadoutDropout(kReadoutSite),
                        .row_ids = row_ids_.data(),
                        .y = a.summary_input},
                       context.stream);
  backend.GatherRows({.x = a.summary_input,
                      .rows = output_rows_.data(),
                      .num_rows = static_cast<int64_t>(output_rows_.host.size()),
                      .scatter_add = true,
                      .y = Rows(a.dinput, 0, a.output.dim(0))},
                     context.stream);
}

}  // namespace anyorder
