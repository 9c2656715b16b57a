#include "core/model/feed_forward_block.h"

namespace anyorder {

void FeedForwardBlockForward(const StepContext& context,
                             int64_t layer,
                             const LayerTensors<ConstTensorView>& weights,
                             TensorView output) {
  kernels::Backend& backend = context.backend;
  LayerActivations& a = context.activations.layers[layer];
  const int32_t* const row_ids = context.batch().row_ids.data() + context.shape.first_row(layer);
  const TensorView branch = Rows(context.activations.branch, 0, context.shape.num_rows(layer));

  backend.Gemm({.a = a.attention_output,
                .b = weights.ffn_in,
                .transpose_b = true,
                .bias = weights.ffn_in_bias,
                .c = a.ffn_inner},
               context.stream);
  backend.ActivationForward(
      {.activation = context.shape.model.activation,
       .x = a.ffn_inner,
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardHidden)),
       .row_ids = row_ids,
       .y = a.ffn_hidden},
      context.stream);
  backend.Gemm({.a = a.ffn_hidden,
                .b = weights.ffn_out,
                .transpose_b = true,
                .bias = weights.ffn_out_bias,
                .c = branch},
               context.stream);
  backend.LayerNormForward(
      {.x = branch,
       .residual = a.attention_output,
       .gamma = weights.ffn_norm_gamma,
       .beta = weights.ffn_norm_beta,
       .epsilon = static_cast<float>(context.shape.model.layer_norm_epsilon),
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardOutput)),
       .row_ids = row_ids,
       .sum = a.ffn_sum,
       .mean = a.ffn_mean,
       .rstd = a.ffn_rstd,
       .y = output},
      context.stream);
}

void FeedForwardBlockBackward(const StepContext& context,
                              int64_t layer,
                              const LayerTensors<ConstTensorView>& weights,
                              const LayerTensors<TensorView>& gradients) {
  kernels::Backend& backend = context.backend;
  Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  const int64_t rows = context.shape.num_rows(layer);
  const int32_t* const row_ids = context.batch().row_ids.data() + context.shape.first_row(layer);
  const TensorView dbranch = Rows(scratch.branch, 0, rows);
  const TensorView dhidden = Rows(scratch.dffn, 0, rows);
  const TensorView dmiddle = Rows(scratch.dmiddle, 0, rows);

  backend.LayerNormBackward(
      {.dy = Rows(scratch.dinput, 0, rows),
       .sum = a.ffn_sum,
       .mean = a.ffn_mean,
       .rstd = a.ffn_rstd,
       .gamma = weights.ffn_norm_gamma,
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardOutput)),
       .row_ids = row_ids,
       .dx = dbranch,
       .dresidual = dmiddle,
       .dgamma = gradients.ffn_norm_gamma,
       .dbeta = gradients.ffn_norm_beta},
      context.stream);
  backend.ColumnSum({.x = dbranch, .y = gradients.ffn_out_bias}, context.stream);
  backend.Gemm({.a = dbranch, .b = a.ffn_hidden, .transpose_a = true, .c = gradients.ffn_out},
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
  backend.ColumnSum({.x = dhidden, .y = gradients.ffn_in_bias}, context.stream);
  backend.Gemm({.a = dhidden, .b = a.attention_output, .transpose_a = true, .c = gradients.ffn_in},
               context.stream);
  backend.Gemm({.a = dhidden, .b = weights.ffn_in, .beta = 1.0f, .c = dmiddle}, context.stream);
}

}  // namespace anyorder
