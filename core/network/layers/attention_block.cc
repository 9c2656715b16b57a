#include "core/network/layers/attention_block.h"

#include <cmath>

#include "core/network/layers/global_attention.h"
#include "core/network/layers/recurrence.h"
#include "core/network/layers/sublayer.h"
#include "core/network/tensors/key_cache.h"

namespace anyorder {
namespace {

kernels::AttentionInputs MakeInputs(const StepContext& context, const AttentionTables& tables,
                                    int64_t layer, const LayerTensors<ConstTensorView>& weights) {
  const NetworkShape& shape = context.shape;
  const LayerActivations& a = context.activations.layers[layer];
  kernels::AttentionInputs in;
  tables.plans.SetInputsOfLayer(shape, layer, &in);
  const PositionTables& relative = tables.relative;
  in.q = a.q;
  const bool is_cached = context.cache != nullptr;
  in.k = is_cached ? context.cache->layers[layer].k : a.k;
  in.v = is_cached ? context.cache->layers[layer].v : a.v;
  if (relative.num_tables() > 0) {
    in.relative =
        a.relative.Slice(0, {relative.num_tables(), in.shape.num_distances, shape.heads_dim()});
    in.table_of_lane = relative.table_of_lane();
  }
  if (!tables.bias.spread().is_null()) {
    in.distance_bias = tables.bias.spread();
    in.min_bias_distance = tables.bias.min_distance();
    in.table_of_lane = context.device.direction();
  }
  in.content_bias = weights.content_bias;
  in.position_bias = weights.position_bias;
  in.segment_bias = weights.segment_bias;
  in.segment_embedding = weights.segment_embedding;
  in.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.model.head_dim)));
  const kernels::Band* const bands = tables.bands.data();
  if (bands != nullptr) in.bands = bands + layer * shape.model.num_heads;
  in.dropout = context.AttentionDropout(DropoutSite(layer, DropoutPlace::kAttentionProbabilities));
  in.row_ids = context.device.row_ids() + shape.first_row(layer);
  return in;
}

// [num_tables * R, HD], the rows of the projected table that this microbatch uses.
TensorView UsedDistances(const AttentionTables& tables, const TensorView& table) {
  return table.Slice(0, {tables.relative.num_tables() * table.dim(1), table.dim(2)});
}

// Where AttentionBackward puts bias gradients: their place in the flat space, or with biases shared
// by all layers a scratch that is added to it afterwards.
struct BiasGradients {
  TensorView content, position, segment;
};

BiasGradients BiasTargets(const StepContext& context, const LayerTensors<TensorView>& gradients) {
  const BiasGradients sums{gradients.content_bias, gradients.position_bias, gradients.segment_bias};
  if (context.shape.model.untie_r) return sums;
  const int64_t columns = context.shape.heads_dim();
  const auto scratch = [&](int64_t index, const TensorView& sum) {
    return sum.is_null() ? TensorView()
                         : context.activations.dbiases.Slice(index * columns, {columns});
  };
  return {scratch(0, sums.content), scratch(1, sums.position), scratch(2, sums.segment)};
}

void AddSharedBiases(const StepContext& context, const BiasGradients& layer,
                     const LayerTensors<TensorView>& sums) {
  if (context.shape.model.untie_r) return;
  const auto add = [&context](const TensorView& sum, const TensorView& part) {
    if (!sum.is_null()) context.backend.Add(sum, part, sum, context.stream);
  };
  add(sums.content_bias, layer.content);
  add(sums.position_bias, layer.position);
  add(sums.segment_bias, layer.segment);
}

// Of the rows that the layer computes; null without rotary positions.
ConstTensorView QueryAngles(const StepContext& context, const AttentionTables& tables,
                            int64_t layer) {
  const ConstTensorView angles = tables.rotary.rows();
  if (angles.is_null()) return angles;
  const int64_t columns = angles.dim(1);
  return angles.Slice(context.shape.first_row(layer) * columns,
                      {context.shape.num_rows(layer), columns});
}

void AttentionCoreBackward(const StepContext& context, const AttentionTables& tables, int64_t layer,
                           const LayerTensors<ConstTensorView>& weights,
                           const LayerTensors<TensorView>& gradients) {
  Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  const int64_t rows = context.shape.num_rows(layer);
  const BiasGradients biases = BiasTargets(context, gradients);
  kernels::AttentionBackwardArgs args;
  args.in = MakeInputs(context, tables, layer, weights);
  args.out = a.attended;
  args.lse = a.lse;
  args.dout = Rows(scratch.dattended, 0, rows);
  args.dq = Rows(scratch.dq, 0, rows);
  args.dk = scratch.dk;
  args.dv = scratch.dv;
  if (!args.in.relative.is_null())
    args.drelative = scratch.drelative.Slice(0, args.in.relative.shape());
  args.dcontent_bias = biases.content;
  args.dposition_bias = biases.position;
  args.dsegment_bias = biases.segment;
  args.dsegment_embedding = gradients.segment_embedding;
  args.ddistance_bias = tables.bias.dspread();
  args.workspace = scratch.workspace;
  context.backend.AttentionBackward(args, context.stream);
  tables.bias.AddGradient(context, gradients.distance_bias);
  AddSharedBiases(context, biases, gradients);
  Rotate(context, args.dq, QueryAngles(context, tables, layer), /*inverse=*/true);
  Rotate(context, args.dk, tables.rotary.keys(), /*inverse=*/true);
}

// Of each lane's keys those from `first_key` on, as many as `target` [B * rows, d] has rows of a
// lane: target = beta * target + dk Wk^T + dv Wv^T, and the same of global projections. One product
// of all lanes each.
void AddKeyGradients(const StepContext& context, int64_t layer,
                     const LayerTensors<ConstTensorView>& weights, int64_t first_key,
                     TensorView target, float beta) {
  const Activations& scratch = context.activations;
  const BatchShape& batch = context.shape.batch;
  // Lanes without other keys between them are one long lane.
  const bool lanes_touch = target.dim(0) == batch.batch_size * batch.num_keys();
  const int64_t lanes = lanes_touch ? 1 : batch.batch_size;
  const int64_t rows = target.dim(0) / lanes;
  const auto add = [&](const TensorView& gradient, ConstTensorView weight, float scale) {
    context.backend.Gemm({.a = Rows(gradient, first_key, rows),
                          .b = weight,
                          .transpose_b = true,
                          .beta = scale,
                          .c = Rows(target, 0, rows),
                          .batch = {.count = lanes,
                                    .a = batch.num_keys() * gradient.dim(1),
                                    .c = rows * target.dim(1)}},
                         context.stream);
  };
  add(scratch.dk, weights.k, beta);
  add(scratch.dv, weights.v, 1.0f);
  if (!context.shape.has_global_rows(layer)) return;
  add(scratch.dglobal_k, weights.global_k, 1.0f);
  add(scratch.dglobal_v, weights.global_v, 1.0f);
}

// Gradient through keys and values into `target` [N, d]. Memory rows, which stand between the
// lanes, take none.
void KeysBackward(const StepContext& context, int64_t layer,
                  const LayerTensors<ConstTensorView>& weights, TensorView target) {
  const BatchShape& batch = context.shape.batch;
  // Nothing has written the content rows yet if the layer computes query rows only.
  const float content_beta = context.shape.first_row(layer) == 0 ? 1.0f : 0.0f;
  const int64_t num_content = batch.batch_size * batch.content_rows;
  const TensorView content = Rows(target, 0, num_content);
  AddKeyGradients(context, layer, weights, batch.memory_rows, content, content_beta);
  if (!batch.query_is_key) return;
  AddKeyGradients(context, layer, weights, batch.memory_rows + batch.content_rows,
                  Rows(target, num_content, batch.batch_size * batch.query_rows), 1.0f);
}

// The LayerNorm before the part, of a pre-LN network.
NormTensors InputNorm(const StepContext& context, int64_t layer,
                      const LayerTensors<ConstTensorView>& weights) {
  const LayerActivations& a = context.activations.layers[layer];
  return {weights.attention_norm_gamma, weights.attention_norm_beta, a.input, a.attention_mean,
          a.attention_rstd};
}

// From the gradient of the normalised input to that of the input. Memory takes none, but the
// LayerNorm's parameters have one through it.
void InputNormBackward(const StepContext& context, int64_t layer,
                       const LayerTensors<ConstTensorView>& weights,
                       const LayerTensors<TensorView>& gradients, ConstTensorView dnormed) {
  const Activations& scratch = context.activations;
  const NormGradients sums{gradients.attention_norm_gamma, gradients.attention_norm_beta};
  NormBackward(context, InputNorm(context, layer, weights), sums, dnormed, scratch.dinput);
  const BatchShape& batch = context.shape.batch;
  if (batch.memory_rows == 0) return;
  AddKeyGradients(context, layer, weights, 0, scratch.dmemory, 0.0f);
  const int64_t dim = context.model_dim();
  const NormGradients part{scratch.dnorm.Slice(0, {dim}), scratch.dnorm.Slice(dim, {dim})};
  NormBackward(context, MemoryNorm(context, weights), part, scratch.dmemory, scratch.dmemory);
  context.backend.Add(sums.gamma, part.gamma, sums.gamma, context.stream);
  context.backend.Add(sums.beta, part.beta, sums.beta, context.stream);
}

// What the projections multiply, [N, d].
TensorView PartInput(const StepContext& context, int64_t layer) {
  const LayerActivations& a = context.activations.layers[layer];
  return context.shape.model.pre_norm() ? a.attention_normed : a.input;
}

Residual ResidualOf(const StepContext& context, int64_t layer,
                    const LayerTensors<ConstTensorView>& weights) {
  const LayerActivations& a = context.activations.layers[layer];
  return {.dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kAttentionOutput)),
          .row_ids = context.device.row_ids() + context.shape.first_row(layer),
          .norm = {weights.attention_norm_gamma, weights.attention_norm_beta, a.attention_sum,
                   a.attention_mean, a.attention_rstd}};
}

// q, k, v and r of the layer.
void Project(const StepContext& context, const AttentionTables& tables, int64_t layer,
             const LayerTensors<ConstTensorView>& weights, ConstTensorView keys_input) {
  kernels::Backend& backend = context.backend;
  LayerActivations& a = context.activations.layers[layer];
  const TensorView input = Rows(PartInput(context, layer), context.shape.first_row(layer),
                                context.shape.num_rows(layer));
  ProjectKeyValue(context, keys_input, {weights.k, weights.v}, {weights.k_bias, weights.v_bias},
                  {a.k, a.v});
  const bool has_tables = context.cache != nullptr && context.cache->has_tables;
  if (tables.relative.num_tables() > 0 && !has_tables) {
    backend.Gemm(
        {.a = tables.relative.encodings(), .b = weights.r, .c = UsedDistances(tables, a.relative)},
        context.stream);
  }
  backend.Gemm({.a = input, .b = weights.q, .bias = weights.q_bias, .c = a.q}, context.stream);
  Rotate(context, a.q, QueryAngles(context, tables, layer), /*inverse=*/false);
  Rotate(context, a.k, tables.rotary.keys(), /*inverse=*/false);
  if (context.cache != nullptr) StoreKeys(context, layer);
}

}  // namespace

void AttentionBlockForward(const StepContext& context, const AttentionTables& tables, int64_t layer,
                           const LayerTensors<ConstTensorView>& weights) {
  kernels::Backend& backend = context.backend;
  LayerActivations& a = context.activations.layers[layer];
  const int64_t rows = context.shape.num_rows(layer);
  const TensorView input = PartInput(context, layer);
  const TensorView branch = Rows(context.activations.branch, 0, rows);

  if (context.shape.model.pre_norm())
    NormForward(context, InputNorm(context, layer, weights), input);
  const ConstTensorView keys_input = KeysInput(context, layer, weights, input);
  Project(context, tables, layer, weights, keys_input);
  backend.AttentionForward(
      {.in = MakeInputs(context, tables, layer, weights), .out = a.attended, .lse = a.lse},
      context.stream);
  if (context.shape.has_global_rows(layer))
    GlobalAttentionForward(context, tables, layer, weights, input, keys_input);
  backend.Gemm(
      {.a = a.attended, .b = weights.o, .transpose_b = true, .bias = weights.o_bias, .c = branch},
      context.stream);
  ResidualForward(context, ResidualOf(context, layer, weights), branch,
                  Rows(a.input, context.shape.first_row(layer), rows), a.attention_output);
}

void AttentionBlockBackward(const StepContext& context, const AttentionTables& tables,
                            int64_t layer, const LayerTensors<ConstTensorView>& weights,
                            const LayerTensors<TensorView>& gradients) {
  kernels::Backend& backend = context.backend;
  Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  const int64_t first = context.shape.first_row(layer);
  const int64_t rows = context.shape.num_rows(layer);
  const bool pre_norm = context.shape.model.pre_norm();
  const TensorView dmiddle = Rows(scratch.dmiddle, 0, rows);
  const TensorView dbranch = Rows(scratch.branch, 0, rows);
  const TensorView dq = Rows(scratch.dq, 0, rows);

  ResidualBackward(context, ResidualOf(context, layer, weights),
                   {gradients.attention_norm_gamma, gradients.attention_norm_beta}, dmiddle,
                   dbranch, Rows(scratch.dinput, first, rows));
  backend.Gemm({.a = dbranch,
                .b = a.attended,
                .transpose_a = true,
                .c = gradients.o,
                .a_sum = gradients.o_bias},
               context.stream);
  backend.Gemm({.a = dbranch, .b = weights.o, .c = Rows(scratch.dattended, 0, rows)},
               context.stream);
  AttentionCoreBackward(context, tables, layer, weights, gradients);

  // The gradient of what the projections multiply: post-LN's input, where the residual's is
  // already, or pre-LN's normalised one, for which the branch, now done with, has room.
  const TensorView input = PartInput(context, layer);
  const TensorView target = pre_norm ? scratch.branch : scratch.dinput;
  ProjectionBackward(context, Rows(input, first, rows), dq, gradients.q, gradients.q_bias);
  backend.Gemm({.a = dq,
                .b = weights.q,
                .transpose_b = true,
                .beta = pre_norm ? 0.0f : 1.0f,
                .c = Rows(target, first, rows)},
               context.stream);
  const ConstTensorView keys_input = KeysInput(context, layer, weights, input);
  KeyValueBackward(context, keys_input, {scratch.dk, scratch.dv}, {gradients.k, gradients.v},
                   {gradients.k_bias, gradients.v_bias});
  if (tables.relative.num_tables() > 0) {
    ProjectionBackward(context, tables.relative.encodings(),
                       UsedDistances(tables, scratch.drelative), gradients.r, TensorView());
  }
  GlobalAttentionBackward(context, tables, layer, weights, gradients, input, keys_input, target);
  KeysBackward(context, layer, weights, target);
  if (!pre_norm) return;
  InputNormBackward(context, layer, weights, gradients, target);
  AddResidual(context, dmiddle, Rows(scratch.dinput, first, rows));
}

}  // namespace anyorder
