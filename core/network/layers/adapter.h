// Low-rank adapters of projections (core/config/lora_config.h). All matrices are [rows, columns] T,
// gradients of parameters G; `adapter` may be null, and then nothing happens.

#pragma once

#include "core/network/tensors/step_context.h"

namespace anyorder {

// y += (alpha / rank) (x a^T) b^T. REQUIRES: y holds the projection of x.
void AddAdapter(const StepContext& context, ConstTensorView x,
                const AdapterTensors<ConstTensorView>& adapter, TensorView y);

// From dy, the gradient of y: overwrites those of a and b, and returns that of x a^T [rows, rank],
// which lies at `dlow`: activations.low_rank, or a place that keeps it for longer. Null without an
// adapter.
TensorView AdapterGradients(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                            const AdapterTensors<ConstTensorView>& adapter,
                            const AdapterTensors<TensorView>& gradients, TensorView dlow);

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
void DenseBackward(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                   const AdaptedWeights& weights, const AdaptedGradients& gradients, float beta,
                   TensorView dx);

// dx += what comes through the adapter.
inline void AddThroughAdapter(const StepContext& context, ConstTensorView dlow,
                              const AdapterTensors<ConstTensorView>& adapter, TensorView dx) {
  if (adapter.is_null()) return;
  context.backend.Gemm({.a = dlow, .b = adapter.a, .beta = 1.0f, .c = dx}, context.stream);
}

}  // namespace anyorder
