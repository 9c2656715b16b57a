#include "core/network/layers/feed_forward_block.h"

#include "core/network/layers/sublayer.h"

namespace anyorder {
namespace {

Residual ResidualOf(const StepContext& context, int64_t layer,
                    const LayerTensors<ConstTensorView>& weights) {
  const LayerActivations& a = context.activations.layers[layer];
  return {
      .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardOutput)),
      .row_ids = context.device.row_ids() + context.shape.first_row(layer),
      .norm = {weights.ffn_norm_gamma, weights.ffn_norm_beta, a.ffn_sum, a.ffn_mean, a.ffn_rstd}};
}

// The LayerNorm before the part, of a pre-LN network.
NormTensors InputNorm(const StepContext& context, int64_t layer,
                      const LayerTensors<ConstTensorView>& weights) {
  const LayerActivations& a = context.activations.layers[layer];
  return {weights.ffn_norm_gamma, weights.ffn_norm_beta, a.attention_output, a.ffn_mean,
          a.ffn_rstd};
}

// What W1 multiplies.
TensorView PartInput(const StepContext& context, int64_t layer) {
  const LayerActivations& a = context.activations.layers[layer];
  return context.shape.model.pre_norm() ? a.ffn_normed : a.attention_output;
}

}  // namespace

void FeedForwardBlockForward(const StepContext& context, int64_t layer,
                             const LayerTensors<ConstTensorView>& weights, TensorView output) {
  kernels::Backend& backend = context.backend;
  LayerActivations& a = context.activations.layers[layer];
  const TensorView input = PartInput(context, layer);
  const TensorView branch = Rows(context.activations.branch, 0, context.shape.num_rows(layer));

  if (context.shape.model.pre_norm())
    NormForward(context, InputNorm(context, layer, weights), input);
  backend.Gemm({.a = input,
                .b = weights.ffn_in,
                .transpose_b = true,
                .bias = weights.ffn_in_bias,
                .c = a.ffn_inner},
               context.stream);
  backend.ActivationForward(
      {.activation = context.shape.model.activation,
       .x = a.ffn_inner,
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardHidden)),
       .row_ids = context.device.row_ids() + context.shape.first_row(layer),
       .y = a.ffn_hidden},
      context.stream);
  backend.Gemm({.a = a.ffn_hidden,
                .b = weights.ffn_out,
                .transpose_b = true,
                .bias = weights.ffn_out_bias,
                .c = branch},
               context.stream);
  ResidualForward(context, ResidualOf(context, layer, weights), branch, a.attention_output, output);
}

void FeedForwardBlockBackward(const StepContext& context, int64_t layer,
                              const LayerTensors<ConstTensorView>& weights,
                              const LayerTensors<TensorView>& gradients) {
  kernels::Backend& backend = context.backend;
  Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  const int64_t rows = context.shape.num_rows(layer);
  const int32_t* const row_ids = context.device.row_ids() + context.shape.first_row(layer);
  const TensorView input = PartInput(context, layer);
  const TensorView dbranch = Rows(scratch.branch, 0, rows);
  const TensorView dhidden = Rows(scratch.dffn, 0, rows);
  const TensorView dmiddle = Rows(scratch.dmiddle, 0, rows);
  const NormGradients dnorm{gradients.ffn_norm_gamma, gradients.ffn_norm_beta};
  const bool pre_norm = context.shape.model.pre_norm();

  ResidualBackward(context, ResidualOf(context, layer, weights), dnorm,
                   Rows(scratch.dinput, 0, rows), dbranch, dmiddle);
  backend.Gemm({.a = dbranch,
                .b = a.ffn_hidden,
                .transpose_a = true,
                .c = gradients.ffn_out,
                .a_sum = gradients.ffn_out_bias},
               context.stream);
  backend.Gemm({.a = dbranch, .b = weights.ffn_out, .c = dhidden}, context.stream);
  backend.ActivationBackward(
      {.activation = context.shape.model.activation,
       .x = a.ffn_inner,
       .dy = dhidden,
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardHidden)),
       .row_ids = row_ids,
       .dx = dhidden},
      context.stream);
  backend.Gemm({.a = dhidden,
                .b = input,
                .transpose_a = true,
                .c = gradients.ffn_in,
                .a_sum = gradients.ffn_in_bias},
               context.stream);
  // Post-LN has left the residual's gradient there.
  backend.Gemm({.a = dhidden, .b = weights.ffn_in, .beta = pre_norm ? 0.0f : 1.0f, .c = dmiddle},
               context.stream);
  if (pre_norm) NormBackward(context, InputNorm(context, layer, weights), dnorm, dmiddle, dmiddle);
  AddResidual(context, Rows(scratch.dinput, 0, rows), dmiddle);
}

}  // namespace anyorder
