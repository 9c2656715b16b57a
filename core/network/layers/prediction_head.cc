#include "core/network/layers/prediction_head.h"

#include "core/network/layers/sublayer.h"

namespace anyorder {
namespace {

NormTensors HeadNorm(const StepContext& context, const NetworkWeights& weights) {
  const Activations& a = context.activations;
  return {weights.head_norm_gamma, weights.head_norm_beta, a.head_hidden, a.head_mean, a.head_rstd};
}

}  // namespace

void PredictionHeadForward(const StepContext& context, const NetworkWeights& weights,
                           ConstTensorView x) {
  const Activations& a = context.activations;
  context.backend.Gemm({.a = x,
                        .b = weights.head,
                        .transpose_b = true,
                        .bias = weights.head_bias,
                        .c = a.head_inner},
                       context.stream);
  context.backend.ActivationForward(
      {.activation = context.shape.model.activation, .x = a.head_inner, .y = a.head_hidden},
      context.stream);
  NormForward(context, HeadNorm(context, weights), a.head_output);
}

void PredictionHeadBackward(const StepContext& context, const NetworkWeights& weights,
                            const NetworkGradients& gradients, ConstTensorView x,
                            ConstTensorView dy, TensorView dx) {
  const Activations& a = context.activations;
  const TensorView dinner = a.head_output;
  NormBackward(context, HeadNorm(context, weights),
               {gradients.head_norm_gamma, gradients.head_norm_beta}, dy, dinner);
  context.backend.ActivationBackward(
      {.activation = context.shape.model.activation, .x = a.head_inner, .dy = dinner, .dx = dinner},
      context.stream);
  context.backend.Gemm(
      {.a = dinner, .b = x, .transpose_a = true, .c = gradients.head, .a_sum = gradients.head_bias},
      context.stream);
  context.backend.Gemm({.a = dinner, .b = weights.head, .c = dx}, context.stream);
}

}  // namespace anyorder
