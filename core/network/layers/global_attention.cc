#include "core/network/layers/global_attention.h"

#include <cmath>

#include "core/network/layers/sublayer.h"

namespace anyorder {
namespace {

kernels::AttentionInputs MakeInputs(const StepContext& context, const AttentionTables& tables,
                                    int64_t layer) {
  const NetworkShape& shape = context.shape;
  const LayerActivations& a = context.activations.layers[layer];
  kernels::AttentionInputs in;
  tables.plans.SetInputsOfGlobals(&in);
  in.q = a.global_q;
  in.k = a.global_k;
  in.v = a.global_v;
  in.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.model.head_dim)));
  in.dropout = context.AttentionDropout(DropoutSite(layer, DropoutPlace::kGlobalProbabilities));
  in.row_ids = tables.globals.row_ids();
  return in;
}

int64_t NumSlots(const StepContext& context) {
  return static_cast<int64_t>(context.batch().global_slots.size());
}

// to[i] = from[global slot i]
void Gather(const StepContext& context, ConstTensorView from, TensorView to) {
  context.backend.GatherRows(
      {.x = from, .rows = context.device.global_slots(), .num_rows = NumSlots(context), .y = to},
      context.stream);
}

// to[global slot i] += from[i]
void Scatter(const StepContext& context, ConstTensorView from, TensorView to) {
  context.backend.GatherRows({.x = from,
                              .rows = context.device.global_slots(),
                              .num_rows = NumSlots(context),
                              .scatter_add = true,
                              .y = to},
                             context.stream);
}

void ClearGradients(const StepContext& context, const LayerTensors<TensorView>& gradients) {
  for (const TensorView& view :
       {gradients.global_q, gradients.global_k, gradients.global_v, gradients.global_q_bias,
        gradients.global_k_bias, gradients.global_v_bias}) {
    if (!view.is_null()) context.backend.FillZero(view, context.stream);
  }
}

}  // namespace

void GlobalAttentionForward(const StepContext& context, const AttentionTables& tables,
                            int64_t layer, const LayerTensors<ConstTensorView>& weights,
                            ConstTensorView input, ConstTensorView keys_input) {
  kernels::Backend& backend = context.backend;
  const LayerActivations& a = context.activations.layers[layer];
  const TensorView rows = context.activations.global_input;
  Gather(context, input, rows);
  backend.Gemm({.a = rows, .b = weights.global_q, .bias = weights.global_q_bias, .c = a.global_q},
               context.stream);
  ProjectKeyValue(context, keys_input, {weights.global_k, weights.global_v},
                  {weights.global_k_bias, weights.global_v_bias}, {a.global_k, a.global_v});
  Rotate(context, a.global_q, tables.globals.angles(), /*inverse=*/false);
  Rotate(context, a.global_k, tables.rotary.keys(), /*inverse=*/false);
  backend.AttentionForward(
      {.in = MakeInputs(context, tables, layer), .out = a.global_attended, .lse = a.global_lse},
      context.stream);
  Scatter(context, a.global_attended, a.attended);
}

void GlobalAttentionBackward(const StepContext& context, const AttentionTables& tables,
                             int64_t layer, const LayerTensors<ConstTensorView>& weights,
                             const LayerTensors<TensorView>& gradients, ConstTensorView input,
                             ConstTensorView keys_input, TensorView dinput) {
  if (!context.shape.has_global_rows(layer)) return ClearGradients(context, gradients);
  kernels::Backend& backend = context.backend;
  const Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  Gather(context, scratch.dattended, scratch.dglobal_attended);
  kernels::AttentionBackwardArgs args;
  args.in = MakeInputs(context, tables, layer);
  args.out = a.global_attended;
  args.lse = a.global_lse;
  args.dout = scratch.dglobal_attended;
  args.dq = scratch.dglobal_q;
  args.dk = scratch.dglobal_k;
  args.dv = scratch.dglobal_v;
  args.workspace = scratch.workspace;
  backend.AttentionBackward(args, context.stream);
  Rotate(context, scratch.dglobal_q, tables.globals.angles(), /*inverse=*/true);
  Rotate(context, scratch.dglobal_k, tables.rotary.keys(), /*inverse=*/true);

  const TensorView rows = scratch.global_input;
  Gather(context, input, rows);
  ProjectionBackward(context, rows, scratch.dglobal_q, gradients.global_q, gradients.global_q_bias);
  KeyValueBackward(context, keys_input, {scratch.dglobal_k, scratch.dglobal_v},
                   {gradients.global_k, gradients.global_v},
                   {gradients.global_k_bias, gradients.global_v_bias});
  backend.Gemm({.a = scratch.dglobal_q, .b = weights.global_q, .transpose_b = true, .c = rows},
               context.stream);
  Scatter(context, rows, dinput);
}

}  // namespace anyorder
