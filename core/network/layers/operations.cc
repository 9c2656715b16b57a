#include "core/network/layers/operations.h"

#include "core/base/check.h"

namespace anyorder {

namespace {

// What is asked for of a product that is a weight's gradient, with the sums of dy along with it:
// both, the bias's alone, or nothing, as of frozen weights.
void WeightGradients(const StepContext& context, const kernels::GemmArgs& product,
                     ConstTensorView dy, TensorView dbias) {
  if (!product.c.is_null()) return context.backend.Gemm(product, context.stream);
  if (!dbias.is_null()) context.backend.ColumnSum({.x = dy, .y = dbias}, context.stream);
}

// Elements from the keys' tensor to the values'; 0 for null ones.
template <typename View>
int64_t Distance(const KeyValue<View>& pair) {
  return (static_cast<const char*>(pair.v.raw()) - static_cast<const char*>(pair.k.raw())) /
         SizeOf(pair.k.dtype());
}

// With adapters either may be trained, so that they lie in different places.
bool AreInOneCall(const StepContext& context) { return !context.shape.model.lora.is_on(); }

kernels::LayerNormForwardArgs NormArgs(const StepContext& context, const NormTensors& norm,
                                       ConstTensorView x, TensorView y) {
  return {.x = x,
          .gamma = norm.parameters.gamma,
          .beta = norm.parameters.beta,
          .epsilon = static_cast<float>(context.shape.model.layer_norm_epsilon),
          .sum = norm.kept.sum,
          .mean = norm.kept.mean,
          .rstd = norm.kept.rstd,
          .y = y};
}

kernels::LayerNormBackwardArgs NormGradientArgs(const NormTensors& norm,
                                                const NormGradients& gradients, ConstTensorView dy,
                                                TensorView dx) {
  return {.dy = dy,
          .sum = norm.kept.sum,
          .mean = norm.kept.mean,
          .rstd = norm.kept.rstd,
          .gamma = norm.parameters.gamma,
          .dx = dx,
          .dgamma = gradients.gamma,
          .dbeta = gradients.beta};
}

}  // namespace

void DenseGradients(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                    TensorView dweight, TensorView dbias) {
  WeightGradients(context, {.a = dy, .b = x, .transpose_a = true, .c = dweight, .a_sum = dbias}, dy,
                  dbias);
}

void ProjectionGradients(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                         TensorView dweight, TensorView dbias) {
  WeightGradients(context, {.a = x, .b = dy, .transpose_a = true, .c = dweight, .b_sum = dbias}, dy,
                  dbias);
}

void ProjectKeyValue(const StepContext& context, ConstTensorView x,
                     const KeyValue<ConstTensorView>& weights,
                     const KeyValue<ConstTensorView>& biases, const KeyValue<TensorView>& y) {
  kernels::GemmArgs keys = {.a = x, .b = weights.k, .bias = biases.k, .c = y.k};
  if (AreInOneCall(context)) {
    keys.batch = {.count = 2, .b = Distance(weights), .bias = Distance(biases), .c = Distance(y)};
    return context.backend.Gemm(keys, context.stream);
  }
  context.backend.Gemm(keys, context.stream);
  context.backend.Gemm({.a = x, .b = weights.v, .bias = biases.v, .c = y.v}, context.stream);
}

void KeyValueGradients(const StepContext& context, ConstTensorView x,
                       const KeyValue<ConstTensorView>& dy, const KeyValue<TensorView>& dweights,
                       const KeyValue<TensorView>& dbiases) {
  if (!AreInOneCall(context)) {
    ProjectionGradients(context, x, dy.k, dweights.k, dbiases.k);
    return ProjectionGradients(context, x, dy.v, dweights.v, dbiases.v);
  }
  context.backend.Gemm(
      {.a = x,
       .b = dy.k,
       .transpose_a = true,
       .c = dweights.k,
       .b_sum = dbiases.k,
       .batch = {.count = 2, .b = Distance(dy), .c = Distance(dweights), .sum = Distance(dbiases)}},
      context.stream);
}

void TanhForward(const StepContext& context, ConstTensorView x, TensorView y,
                 const kernels::Dropout& dropout, const int32_t* row_ids) {
  context.backend.ActivationForward({.activation = kernels::Activation::kTanh,
                                     .x = x,
                                     .dropout = dropout,
                                     .row_ids = row_ids,
                                     .y = y},
                                    context.stream);
}

void TanhBackward(const StepContext& context, ConstTensorView x, TensorView dy,
                  const kernels::Dropout& dropout, const int32_t* row_ids) {
  context.backend.ActivationBackward({.activation = kernels::Activation::kTanh,
                                      .x = x,
                                      .dy = dy,
                                      .dropout = dropout,
                                      .row_ids = row_ids,
                                      .dx = dy},
                                     context.stream);
}

void Rotate(const StepContext& context, TensorView x, ConstTensorView angles, bool inverse) {
  if (angles.is_null()) return;
  context.backend.RotaryApply({.x = x, .angles = angles, .inverse = inverse, .y = x},
                              context.stream);
}

void SoftmaxLosses(const StepContext& context, kernels::LinearCrossEntropyArgs args) {
  args.workspace = context.activations.workspace;
  if (!context.learns()) args.dx = args.dweight = args.dbias = {};
  context.backend.LinearCrossEntropy(args, context.stream);
}

void NormForward(const StepContext& context, const NormTensors& norm, TensorView y) {
  context.backend.LayerNormForward(NormArgs(context, norm, norm.kept.sum, y), context.stream);
}

void NormBackward(const StepContext& context, const NormTensors& norm,
                  const NormGradients& gradients, ConstTensorView dy, TensorView dx) {
  context.backend.LayerNormBackward(NormGradientArgs(norm, gradients, dy, dx), context.stream);
}

void LeaveSublayer(const StepContext& context, const Sublayer& sublayer, TensorView branch,
                   ConstTensorView x, TensorView y) {
  if (context.shape.model.pre_norm()) {
    DropRows(context, sublayer.dropout, sublayer.row_ids, branch);
    context.backend.Add(x, branch, y, context.stream);
    return;
  }
  kernels::LayerNormForwardArgs args = NormArgs(context, sublayer.after, branch, y);
  args.residual = x;
  args.dropout = sublayer.dropout;
  args.row_ids = sublayer.row_ids;
  context.backend.LayerNormForward(args, context.stream);
}

void LeaveSublayerBackward(const StepContext& context, const Sublayer& sublayer, ConstTensorView dy,
                           TensorView dbranch, TensorView dx) {
  if (context.shape.model.pre_norm()) {
    context.backend.DropoutApply(
        {.x = dy, .dropout = sublayer.dropout, .row_ids = sublayer.row_ids, .y = dbranch},
        context.stream);
    return;
  }
  kernels::LayerNormBackwardArgs args =
      NormGradientArgs(sublayer.after, sublayer.gradients, dy, dbranch);
  args.dropout = sublayer.dropout;
  args.row_ids = sublayer.row_ids;
  args.dresidual = dx;
  context.backend.LayerNormBackward(args, context.stream);
}

int32_t HeadRows::Set(const StepContext& context, int64_t entry, int32_t row, int32_t id_row) {
  const int64_t last = context.shape.model.num_layers - 1;
  const auto first = static_cast<int32_t>(context.shape.first_row(last));
  const int32_t output_row = row - first;
  ANYORDER_CHECK(output_row >= 0 && output_row < context.shape.num_rows(last))
      << "row " << row << " of a head is not among the " << context.shape.num_rows(last)
      << " rows from " << first << " that the last layer computes";
  rows_.host[entry] = output_row;
  ids_.host[entry] = context.batch().row_ids[id_row];
  return output_row;
}

}  // namespace anyorder
