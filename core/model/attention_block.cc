#include "core/model/attention_block.h"

#include <cmath>

#include "core/model/recurrence.h"

namespace anyorder {
namespace {

kernels::AttentionInputs MakeInputs(const StepContext& context,
                                    const PositionTables& positions,
                                    int64_t layer,
                                    const LayerTensors<ConstTensorView>& weights) {
  const NetworkShape& shape = context.shape;
  const Batch& batch = context.batch();
  const LayerActivations& a = context.activations.layers[layer];
  const int64_t first = shape.first_row(layer);
  const kernels::RowVisibility rows = batch.rows();
  const int64_t heads_dim = shape.heads_dim();
  kernels::AttentionInputs in;
  in.shape = shape.AttentionShapeOf(layer, positions.num_tables());
  in.q = a.q;
  in.k = a.k;
  in.v = a.v;
  in.relative = a.relative.Slice(0, {positions.num_tables(), in.shape.num_distances, heads_dim});
  in.min_distance = shape.batch.min_distance;
  in.table_of_lane = positions.table_of_lane();
  in.content_bias = weights.content_bias;
  in.position_bias = weights.position_bias;
  in.segment_bias = weights.segment_bias;
  in.segment_embedding = weights.segment_embedding;
  in.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.model.head_dim)));
  in.rows = {rows.pos + first,
             rows.lim + first,
             rows.grp + first,
             rows.doc + first,
             rows.seg + first,
             rows.glob + first};
  in.keys = batch.keys();
  if (!batch.bands.empty()) in.bands = batch.bands.data() + layer * shape.model.num_heads;
  in.dropout = context.AttentionDropout(DropoutSite(layer, DropoutPlace::kAttentionProbabilities));
  in.row_ids = batch.row_ids.data() + first;
  return in;
}

// [num_tables * R, HD], the rows of the projected table that this microbatch uses.
TensorView UsedDistances(const PositionTables& positions, const TensorView& table) {
  return table.Slice(0, {positions.num_tables() * table.dim(1), table.dim(2)});
}

// Where AttentionBackward puts bias gradients: their place in the flat space, or with biases shared by all
// layers a scratch that is added to it afterwards.
struct BiasGradients {
  TensorView content, position, segment;
};

BiasGradients BiasTargets(const StepContext& context, const LayerTensors<TensorView>& gradients) {
  if (context.shape.model.untie_r) {
    return {gradients.content_bias, gradients.position_bias, gradients.segment_bias};
  }
  const TensorView scratch = context.activations.dbiases;
  const int64_t columns = context.shape.heads_dim();
  return {scratch.Slice(0, {columns}),
          scratch.Slice(columns, {columns}),
          context.shape.model.segment_term ? scratch.Slice(2 * columns, {columns}) : TensorView()};
}

void AddSharedBiases(const StepContext& context,
                     const BiasGradients& layer,
                     const LayerTensors<TensorView>& sums) {
  if (context.shape.model.untie_r) return;
  kernels::Backend& backend = context.backend;
  backend.Add(sums.content_bias, layer.content, sums.content_bias, context.stream);
  backend.Add(sums.position_bias, layer.position, sums.position_bias, context.stream);
  if (context.shape.model.segment_term) {
    backend.Add(sums.segment_bias, layer.segment, sums.segment_bias, context.stream);
  }
}

void AttentionCoreBackward(const StepContext& context,
                           const PositionTables& positions,
                           int64_t layer,
                           const LayerTensors<ConstTensorView>& weights,
                           const LayerTensors<TensorView>& gradients) {
  Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  const int64_t rows = context.shape.num_rows(layer);
  const BiasGradients biases = BiasTargets(context, gradients);
  kernels::AttentionBackwardArgs args;
  args.in = MakeInputs(context, positions, layer, weights);
  args.out = a.attended;
  args.lse = a.lse;
  args.dout = Rows(scratch.dattended, 0, rows);
  args.dq = Rows(scratch.dq, 0, rows);
  args.dk = scratch.dk;
  args.dv = scratch.dv;
  args.drelative = scratch.drelative.Slice(0, args.in.relative.shape());
  args.dcontent_bias = biases.content;
  args.dposition_bias = biases.position;
  args.dsegment_bias = biases.segment;
  args.dsegment_embedding = gradients.segment_embedding;
  args.workspace = scratch.workspace;
  context.backend.AttentionBackward(args, context.stream);
  AddSharedBiases(context, biases, gradients);
}

// dinput[rows of one lane] += dk Wk^T + dv Wv^T for `rows` keys of the lane from key slot `key` on.
void AddKeyGradients(const StepContext& context,
                     const LayerTensors<ConstTensorView>& weights,
                     int64_t first_key,
                     int64_t first_row,
                     int64_t rows,
                     float beta) {
  const Activations& scratch = context.activations;
  const TensorView target = Rows(scratch.dinput, first_row, rows);
  context.backend.Gemm({.a = Rows(scratch.dk, first_key, rows),
                        .b = weights.k,
                        .transpose_b = true,
                        .beta = beta,
                        .c = target},
                       context.stream);
  context.backend.Gemm({.a = Rows(scratch.dv, first_key, rows),
                        .b = weights.v,
                        .transpose_b = true,
                        .beta = 1.0f,
                        .c = target},
                       context.stream);
}

// Gradient through keys and values into the layer's input, lane by lane because memory rows stand between
// the lanes and take none.
void KeysBackward(const StepContext& context,
                  int64_t layer,
                  const LayerTensors<ConstTensorView>& weights) {
  const BatchShape& batch = context.shape.batch;
  // Nothing has written the content rows of dinput yet if the layer computes query rows only.
  const float content_beta = context.shape.first_row(layer) == 0 ? 1.0f : 0.0f;
  const bool lanes_touch = batch.num_keys() == batch.content_rows;
  if (lanes_touch) {
    AddKeyGradients(context, weights, 0, 0, batch.batch_size * batch.content_rows, content_beta);
    return;
  }
  for (int64_t b = 0; b < batch.batch_size; ++b) {
    const int64_t first_key = b * batch.num_keys() + batch.memory_rows;
    AddKeyGradients(
        context, weights, first_key, b * batch.content_rows, batch.content_rows, content_beta);
    if (!batch.query_is_key) continue;
    AddKeyGradients(context,
                    weights,
                    first_key + batch.content_rows,
                    batch.batch_size * batch.content_rows + b * batch.query_rows,
                    batch.query_rows,
                    1.0f);
  }
}

}  // namespace

void AttentionBlockForward(const StepContext& context,
                           const PositionTables& positions,
                           int64_t layer,
                           const LayerTensors<ConstTensorView>& weights) {
  kernels::Backend& backend = context.backend;
  LayerActivations& a = context.activations.layers[layer];
  const int64_t first = context.shape.first_row(layer);
  const int64_t rows = context.shape.num_rows(layer);
  const TensorView input = Rows(a.input, first, rows);
  const TensorView branch = Rows(context.activations.branch, 0, rows);

  const ConstTensorView keys_input = KeysInput(context, layer);
  backend.Gemm({.a = keys_input, .b = weights.k, .c = a.k}, context.stream);
  backend.Gemm({.a = keys_input, .b = weights.v, .c = a.v}, context.stream);
  backend.Gemm(
      {.a = positions.encodings(), .b = weights.r, .c = UsedDistances(positions, a.relative)},
      context.stream);
  backend.Gemm({.a = input, .b = weights.q, .c = a.q}, context.stream);
  backend.AttentionForward(
      {.in = MakeInputs(context, positions, layer, weights), .out = a.attended, .lse = a.lse},
      context.stream);
  backend.Gemm({.a = a.attended, .b = weights.o, .transpose_b = true, .c = branch}, context.stream);
  backend.LayerNormForward(
      {.x = branch,
       .residual = input,
       .gamma = weights.attention_norm_gamma,
       .beta = weights.attention_norm_beta,
       .epsilon = static_cast<float>(context.shape.model.layer_norm_epsilon),
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kAttentionOutput)),
       .row_ids = context.batch().row_ids.data() + first,
       .sum = a.attention_sum,
       .mean = a.attention_mean,
       .rstd = a.attention_rstd,
       .y = a.attention_output},
      context.stream);
}

void AttentionBlockBackward(const StepContext& context,
                            const PositionTables& positions,
                            int64_t layer,
                            const LayerTensors<ConstTensorView>& weights,
                            const LayerTensors<TensorView>& gradients) {
  kernels::Backend& backend = context.backend;
  Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  const int64_t first = context.shape.first_row(layer);
  const int64_t rows = context.shape.num_rows(layer);
  const TensorView dbranch = Rows(scratch.branch, 0, rows);
  const TensorView dinput = Rows(scratch.dinput, first, rows);
  const TensorView dattended = Rows(scratch.dattended, 0, rows);
  const TensorView dq = Rows(scratch.dq, 0, rows);

  backend.LayerNormBackward(
      {.dy = Rows(scratch.dmiddle, 0, rows),
       .sum = a.attention_sum,
       .mean = a.attention_mean,
       .rstd = a.attention_rstd,
       .gamma = weights.attention_norm_gamma,
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kAttentionOutput)),
       .row_ids = context.batch().row_ids.data() + first,
       .dx = dbranch,
       .dresidual = dinput,
       .dgamma = gradients.attention_norm_gamma,
       .dbeta = gradients.attention_norm_beta},
      context.stream);
  backend.Gemm({.a = dbranch, .b = a.attended, .transpose_a = true, .c = gradients.o},
               context.stream);
  backend.Gemm({.a = dbranch, .b = weights.o, .c = dattended}, context.stream);
  AttentionCoreBackward(context, positions, layer, weights, gradients);

  backend.Gemm({.a = Rows(a.input, first, rows), .b = dq, .transpose_a = true, .c = gradients.q},
               context.stream);
  backend.Gemm({.a = dq, .b = weights.q, .transpose_b = true, .beta = 1.0f, .c = dinput},
               context.stream);
  const ConstTensorView keys_input = KeysInput(context, layer);
  backend.Gemm({.a = keys_input, .b = scratch.dk, .transpose_a = true, .c = gradients.k},
               context.stream);
  backend.Gemm({.a = keys_input, .b = scratch.dv, .transpose_a = true, .c = gradients.v},
               context.stream);
  backend.Gemm({.a = positions.encodings(),
                .b = UsedDistances(positions, scratch.drelative),
                .transpose_a = true,
                .c = gradients.r},
               context.stream);
  KeysBackward(context, layer, weights);
}

}  // namespace anyorder
