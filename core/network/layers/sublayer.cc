#include "core/network/layers/sublayer.h"

namespace anyorder {

void NormForward(const StepContext& context, const NormTensors& norm, TensorView y) {
  context.backend.LayerNormForward(
      {.x = norm.sum,
       .gamma = norm.gamma,
       .beta = norm.beta,
       .epsilon = static_cast<float>(context.shape.model.layer_norm_epsilon),
       .sum = norm.sum,
       .mean = norm.mean,
       .rstd = norm.rstd,
       .y = y},
      context.stream);
}

void NormBackward(const StepContext& context, const NormTensors& norm,
                  const NormGradients& gradients, ConstTensorView dy, TensorView dx) {
  context.backend.LayerNormBackward({.dy = dy,
                                     .sum = norm.sum,
                                     .mean = norm.mean,
                                     .rstd = norm.rstd,
                                     .gamma = norm.gamma,
                                     .dx = dx,
                                     .dgamma = gradients.gamma,
                                     .dbeta = gradients.beta},
                                    context.stream);
}

void ResidualForward(const StepContext& context, const Residual& residual, TensorView branch,
                     ConstTensorView x, TensorView y) {
  if (context.shape.model.pre_norm()) {
    if (residual.dropout.enabled()) {
      context.backend.DropoutApply(
          {.x = branch, .dropout = residual.dropout, .row_ids = residual.row_ids, .y = branch},
          context.stream);
    }
    context.backend.Add(x, branch, y, context.stream);
    return;
  }
  context.backend.LayerNormForward(
      {.x = branch,
       .residual = x,
       .gamma = residual.norm.gamma,
       .beta = residual.norm.beta,
       .epsilon = static_cast<float>(context.shape.model.layer_norm_epsilon),
       .dropout = residual.dropout,
       .row_ids = residual.row_ids,
       .sum = residual.norm.sum,
       .mean = residual.norm.mean,
       .rstd = residual.norm.rstd,
       .y = y},
      context.stream);
}

void ResidualBackward(const StepContext& context, const Residual& residual,
                      const NormGradients& gradients, ConstTensorView dy, TensorView dbranch,
                      TensorView dx) {
  if (context.shape.model.pre_norm()) {
    context.backend.DropoutApply(
        {.x = dy, .dropout = residual.dropout, .row_ids = residual.row_ids, .y = dbranch},
        context.stream);
    return;
  }
  context.backend.LayerNormBackward({.dy = dy,
                                     .sum = residual.norm.sum,
                                     .mean = residual.norm.mean,
                                     .rstd = residual.norm.rstd,
                                     .gamma = residual.norm.gamma,
                                     .dropout = residual.dropout,
                                     .row_ids = residual.row_ids,
                                     .dx = dbranch,
                                     .dresidual = dx,
                                     .dgamma = gradients.gamma,
                                     .dbeta = gradients.beta},
                                    context.stream);
}

void AddResidual(const StepContext& context, ConstTensorView dy, TensorView dx) {
  if (context.shape.model.pre_norm()) context.backend.Add(dx, dy, dx, context.stream);
}

namespace {

// Elements from the keys' tensor to the values'; 0 for null ones.
template <typename View>
int64_t Distance(const KeyValue<View>& pair) {
  return (static_cast<const char*>(pair.v.raw()) - static_cast<const char*>(pair.k.raw())) /
         SizeOf(pair.k.dtype());
}

}  // namespace

void ProjectKeyValue(const StepContext& context, ConstTensorView x,
                     const KeyValue<ConstTensorView>& weights,
                     const KeyValue<ConstTensorView>& biases, const KeyValue<TensorView>& y) {
  context.backend.Gemm(
      {.a = x,
       .b = weights.k,
       .bias = biases.k,
       .c = y.k,
       .batch = {.count = 2, .b = Distance(weights), .bias = Distance(biases), .c = Distance(y)}},
      context.stream);
}

void KeyValueBackward(const StepContext& context, ConstTensorView x,
                      const KeyValue<ConstTensorView>& dy, const KeyValue<TensorView>& dweights,
                      const KeyValue<TensorView>& dbiases) {
  context.backend.Gemm(
      {.a = x,
       .b = dy.k,
       .transpose_a = true,
       .c = dweights.k,
       .b_sum = dbiases.k,
       .batch = {.count = 2, .b = Distance(dy), .c = Distance(dweights), .sum = Distance(dbiases)}},
      context.stream);
}

void ProjectionBackward(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                        TensorView dweight, TensorView dbias) {
  context.backend.Gemm({.a = x, .b = dy, .transpose_a = true, .c = dweight, .b_sum = dbias},
                       context.stream);
}

}  // namespace anyorder
