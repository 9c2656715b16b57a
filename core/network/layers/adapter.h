// Low-rank adapters of projections (core/config/lora_config.h). All matrices are [rows, columns] T,
// gradients of parameters G; `adapter` may be null, and then nothing happens.

#pragma once

#include "core/network/layers/operations.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// y = (alpha / rank) x a^T. The scale is here, in both directions, and so in every product of it.
inline TensorView ToLowRank(const StepContext& context, kernels::GemmArgs product, int64_t rows) {
  product.scale = static_cast<float>(context.shape.model.lora.scale());
  product.c = Rows(product.c, 0, rows);
  context.backend.Gemm(product, context.stream);
  return product.c;
}

// y += (alpha / rank) (x a^T) b^T. REQUIRES: y holds the projection of x.
inline void AddAdapter(const StepContext& context, ConstTensorView x,
                       const AdapterTensors<ConstTensorView>& adapter, TensorView y) {
  if (adapter.is_null()) return;
  const TensorView low = ToLowRank(
      context, {.a = x, .b = adapter.a, .transpose_b = true, .c = context.activations.low_rank},
      x.dim(0));
  context.backend.Gemm({.a = low, .b = adapter.b, .transpose_b = true, .beta = 1.0f, .c = y},
                       context.stream);
}

// From dy, the gradient of y: overwrites those of a and b, and returns that of x a^T [rows, rank],
// which lies at `dlow`: activations.low_rank, or a place that keeps it for longer. Null without an
// adapter.
inline TensorView AdapterGradients(const StepContext& context, ConstTensorView x,
                                   ConstTensorView dy,
                                   const AdapterTensors<ConstTensorView>& adapter,
                                   const AdapterTensors<TensorView>& gradients, TensorView dlow) {
  if (adapter.is_null()) return {};
  const TensorView low = ToLowRank(
      context, {.a = x, .b = adapter.a, .transpose_b = true, .c = context.activations.low_rank},
      x.dim(0));
  context.backend.Gemm({.a = dy, .b = low, .transpose_a = true, .c = gradients.b}, context.stream);
  dlow = ToLowRank(context, {.a = dy, .b = adapter.b, .c = dlow}, dy.dim(0));
  context.backend.Gemm({.a = dlow, .b = x, .transpose_a = true, .c = gradients.a}, context.stream);
  return dlow;
}

// dx += what comes through the adapter.
inline void AddThroughAdapter(const StepContext& context, ConstTensorView dlow,
                              const AdapterTensors<ConstTensorView>& adapter, TensorView dx) {
  if (adapter.is_null()) return;
  context.backend.Gemm({.a = dlow, .b = adapter.a, .beta = 1.0f, .c = dx}, context.stream);
}

// A dense layer with its adapter, and their gradients.
struct AdaptedWeights {
  ConstTensorView weight;
  AdapterTensors<ConstTensorView> adapter;
};
struct AdaptedGradients {
  TensorView weight, bias;
  AdapterTensors<TensorView> adapter;
};
// All of a dense layer's backward, from dy: the gradients of its weights, and dx = beta dx + what
// comes through it.
inline void DenseBackward(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                          const AdaptedWeights& weights, const AdaptedGradients& gradients,
                          float beta, TensorView dx) {
  DenseGradients(context, x, dy, gradients.weight, gradients.bias);
  context.backend.Gemm({.a = dy, .b = weights.weight, .beta = beta, .c = dx}, context.stream);
  const TensorView dlow = AdapterGradients(context, x, dy, weights.adapter, gradients.adapter,
                                           context.activations.low_rank);
  AddThroughAdapter(context, dlow, weights.adapter, dx);
}

}  // namespace anyorder
