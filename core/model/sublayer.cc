#include "core/model/sublayer.h"

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

void NormBackward(const StepContext& context,
                  const NormTensors& norm,
                  const NormGradients& gradients,
                  ConstTensorView dy,
                  TensorView dx) {
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

void JoinForward(const StepContext& context,
                 const Joint& joint,
                 TensorView branch,
                 ConstTensorView x,
                 TensorView y) {
  if (context.shape.model.pre_norm()) {
    if (joint.dropout.enabled()) {
      context.backend.DropoutApply(
          {.x = branch, .dropout = joint.dropout, .row_ids = joint.row_ids, .y = branch},
          context.stream);
    }
    context.backend.Add(x, branch, y, context.stream);
    return;
  }
  context.backend.LayerNormForward(
      {.x = branch,
       .residual = x,
       .gamma = joint.norm.gamma,
       .beta = joint.norm.beta,
       .epsilon = static_cast<float>(context.shape.model.layer_norm_epsilon),
       .dropout = joint.dropout,
       .row_ids = joint.row_ids,
       .sum = joint.norm.sum,
       .mean = joint.norm.mean,
       .rstd = joint.norm.rstd,
       .y = y},
      context.stream);
}

void JoinBackward(const StepContext& context,
                  const Joint& joint,
                  const NormGradients& gradients,
                  ConstTensorView dy,
                  TensorView dbranch,
                  TensorView dx) {
  if (context.shape.model.pre_norm()) {
    context.backend.DropoutApply(
        {.x = dy, .dropout = joint.dropout, .row_ids = joint.row_ids, .y = dbranch},
        context.stream);
    return;
  }
  context.backend.LayerNormBackward({.dy = dy,
                                     .sum = joint.norm.sum,
                                     .mean = joint.norm.mean,
                                     .rstd = joint.norm.rstd,
                                     .gamma = joint.norm.gamma,
                                     .dropout = joint.dropout,
                                     .row_ids = joint.row_ids,
                                     .dx = dbranch,
                                     .dresidual = dx,
                                     .dgamma = gradients.gamma,
                                     .dbeta = gradients.beta},
                                    context.stream);
}

void AddResidual(const StepContext& context, ConstTensorView dy, TensorView dx) {
  if (context.shape.model.pre_norm()) context.backend.Add(dx, dy, dx, context.stream);
}

void ProjectionBackward(const StepContext& context,
                        ConstTensorView x,
                        ConstTensorView dy,
                        TensorView dweight,
                        TensorView dbias) {
  context.backend.Gemm({.a = x, .b = dy, .transpose_a = true, .c = dweight, .b_sum = dbias},
                       context.stream);
}

}  // namespace anyorder
