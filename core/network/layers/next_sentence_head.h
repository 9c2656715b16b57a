// The next-sentence objective (Devlin et al. 2019, section 3.1; XLNet's ablation "+
// next-sentence"): does segment B follow segment A in the text? The state of CLS goes through
// dropout, a dense layer with tanh, dropout and a dense layer of two classes: XLNet's sequence
// classification, so that an export carries the head on.

#pragma once

#include <numbers>
#include <vector>

#include "core/network/layers/adapter.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class NextSentenceHead {
 public:
  NextSentenceHead(const NetworkShape& shape, DeviceInputs& inputs)
      : rows_(shape.batch.next_sentence ? shape.batch.batch_size : 0, inputs) {
    if (shape.batch.next_sentence) sums_ = {{"nsp_loss"}, {"nsp_accuracy"}};
  }

  // Finds the entries' rows in the last layer's output.
  void SetInputs(const StepContext& context) {
    for (int64_t b = 0; b < rows_.size(); ++b) {
      const int32_t row = context.batch().summary_rows[b];
      rows_.Set(context, b, row, row);
    }
    rows_.Send();
  }

  // After LossHead::Run: losses of the lanes' entries from activations.output, and with gradients
  // those of the head's own parameters, overwritten, and what goes to activations.dinput, added.
  void Run(const StepContext& context) const {
    const Activations& a = context.activations;
    const NetworkWeights& w = context.weights;
    const NetworkGradients& g = context.gradients;
    if (context.learns()) Clear(context, {g.summary, g.summary_bias, g.classes, g.classes_bias});
    if (rows_.size() == 0) return;
    // The same dropout as of other rows that are read out.
    const kernels::Dropout dropout = context.ReadoutDropout(kReadoutSite);
    rows_.Gather(context, a.summary_input);
    DropRows(context, dropout, rows_.ids(), a.summary_input);
    Dense(context, a.summary_input, w.summary, w.summary_bias, a.summary_inner);
    const kernels::Dropout summary_dropout = context.ReadoutDropout(kSummarySite);
    TanhForward(context, a.summary_inner, a.summary_hidden, summary_dropout, rows_.ids());
    SoftmaxLosses(context, {.x = a.summary_hidden,
                            .weight = w.classes,
                            .bias = w.classes_bias,
                            .labels = context.device.summary_labels.data(),
                            .row_weights = context.device.summary_weights.data(),
                            .loss = a.summary_losses,
                            .dx = a.dsummary,
                            .dweight = g.classes,
                            .dbias = g.classes_bias});
    if (!context.learns()) return;
    TanhBackward(context, a.summary_inner, a.dsummary, summary_dropout, rows_.ids());
    DenseBackward(context, a.summary_input, a.dsummary, {w.summary}, {g.summary, g.summary_bias}, 0,
                  a.summary_input);
    DropRows(context, dropout, rows_.ids(), a.summary_input);
    rows_.AddGradients(context, a.summary_input);
  }
  // Asks for the losses; ReadLosses after Backend::Synchronize.
  void FetchLosses(const StepContext& context) {
    if (rows_.size() == 0) return;
    fetched_.Fetch(context.activations.summary_losses, context.backend, context.stream);
  }
  void ReadLosses(const StepContext& context) {
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
  // "nsp_loss" and "nsp_accuracy" over lanes whose entry has a weight: their losses, not weighted
  // and no part of the step's loss (their gradient, weighted, is part of the gradient), and how
  // many labels were the likelier class. Empty without the head.
  const std::vector<NamedSum>& sums() const { return sums_; }

 private:
  HeadRows rows_;  // one a lane
  HostCopy fetched_;
  std::vector<NamedSum> sums_;
};

}  // namespace anyorder
