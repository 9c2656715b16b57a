#include "core/network/layers/adapter.h"

#include "core/network/layers/operations.h"

namespace anyorder {
namespace {

// y = (alpha / rank) x a^T. The scale is here, in both directions, and so in every product of it.
TensorView Lower(const StepContext& context, kernels::GemmArgs product, int64_t rows) {
  product.scale = static_cast<float>(context.shape.model.lora.scale());
  product.c = Rows(product.c, 0, rows);
  context.backend.Gemm(product, context.stream);
  return product.c;
}

}  // namespace

void AddAdapter(const StepContext& context, ConstTensorView x,
                const AdapterTensors<ConstTensorView>& adapter, TensorView y) {
  if (adapter.is_null()) return;
  const TensorView low = Lower(
      context, {.a = x, .b = adapter.a, .transpose_b = true, .c = context.activations.low_rank},
      x.dim(0));
  context.backend.Gemm({.a = low, .b = adapter.b, .transpose_b = true, .beta = 1.0f, .c = y},
                       context.stream);
}

TensorView AdapterGradients(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                            const AdapterTensors<ConstTensorView>& adapter,
                            const AdapterTensors<TensorView>& gradients, TensorView dlow) {
  if (adapter.is_null()) return {};
  const TensorView low = Lower(
      context, {.a = x, .b = adapter.a, .transpose_b = true, .c = context.activations.low_rank},
      x.dim(0));
  context.backend.Gemm({.a = dy, .b = low, .transpose_a = true, .c = gradients.b}, context.stream);
  dlow = Lower(context, {.a = dy, .b = adapter.b, .c = dlow}, dy.dim(0));
  context.backend.Gemm({.a = dlow, .b = x, .transpose_a = true, .c = gradients.a}, context.stream);
  return dlow;
}

void DenseBackward(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                   const AdaptedWeights& weights, const AdaptedGradients& gradients, float beta,
                   TensorView dx) {
  DenseGradients(context, x, dy, gradients.weight, gradients.bias);
  context.backend.Gemm({.a = dy, .b = weights.weight, .beta = beta, .c = dx}, context.stream);
  const TensorView dlow = AdapterGradients(context, x, dy, weights.adapter, gradients.adapter,
                                           context.activations.low_rank);
  AddThroughAdapter(context, dlow, weights.adapter, dx);
}

}  // namespace anyorder
