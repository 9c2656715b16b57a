#include "core/network/layers/attention_block.h"

#include <cmath>

#include "core/base/check.h"
#include "core/network/layers/adapter.h"
#include "core/network/layers/operations.h"
#include "core/network/layers/recurrence.h"

namespace anyorder {

namespace {

// [num_tables * R, HD], the rows of the projected table that this microbatch uses.
TensorView UsedDistances(const AttentionTables& tables, const TensorView& table) {
  return table.Slice(0, {tables.relative.num_tables() * table.dim(1), table.dim(2)});
}

class AttentionBlock {
 public:
  AttentionBlock(const StepContext& context, const AttentionTables& tables, int64_t layer)
      : context_(context),
        backend_(context.backend),
        tables_(tables),
        layer_(layer),
        first_(context.shape.first_row(layer)),
        rows_(context.shape.num_rows(layer)),
        scratch_(context.activations),
        a_(scratch_.layers[layer]),
        w_(context.weights.layers[layer]) {
    const NormActivations& kept = a_.attention_norm;
    sublayer_.before = {w_.attention_norm, {a_.input, kept.mean, kept.rstd}};
    sublayer_.normed = a_.attention_normed;
    sublayer_.after = {w_.attention_norm, kept};
    sublayer_.dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kAttentionOutput));
    sublayer_.row_ids = context.device.row_ids.data() + first_;
    if (context.learns()) sublayer_.gradients = context.gradients.layers[layer].attention_norm;
  }

  void Forward() const {
    const TensorView branch = Rows(scratch_.branch, 0, rows_);
    const TensorView input = EnterSublayer(context_, sublayer_);
    const ConstTensorView keys_input = KeysInput(context_, layer_, input);
    Project(Rows(input, first_, rows_), keys_input);
    backend_.AttentionForward({.in = Inputs(), .out = a_.attended, .lse = a_.lse}, context_.stream);
    if (context_.shape.has_global_rows(layer_)) GlobalForward(input, keys_input);
    Dense(context_, a_.attended, w_.o, w_.o_bias, branch);
    AddAdapter(context_, a_.attended, w_.o_adapter, branch);
    LeaveSublayer(context_, sublayer_, branch, Rows(a_.input, first_, rows_), a_.attention_output);
  }

  void MakeAgain() const {
    if (context_.shape.OverlaidPart(layer_) == Recompute::kLayer) return Forward();
    EnterSublayer(context_, sublayer_);
  }

  void Backward() const {
    const LayerGradients& g = context_.gradients.layers[layer_];
    const bool pre_norm = context_.shape.model.pre_norm();
    const TensorView dmiddle = Rows(scratch_.dmiddle, 0, rows_);
    const TensorView dbranch = Rows(scratch_.branch, 0, rows_);
    const TensorView dq = Rows(scratch_.dq, 0, rows_);
    const TensorView residual = Rows(scratch_.dinput, first_, rows_);

    LeaveSublayerBackward(context_, sublayer_, dmiddle, dbranch, residual);
    DenseBackward(context_, a_.attended, dbranch, {w_.o, w_.o_adapter},
                  {g.o, g.o_bias, g.o_adapter}, 0.0f, Rows(scratch_.dattended, 0, rows_));
    CoreBackward(g);

    // The gradient of what the projections multiply: post-LN's input, where the residual's is
    // already, or pre-LN's normalised one, for which the branch, now done with, has room.
    const TensorView input = sublayer_.Input(context_);
    const TensorView target = pre_norm ? scratch_.branch : scratch_.dinput;
    QueryBackward(g, Rows(input, first_, rows_), dq, Rows(target, first_, rows_));
    const ConstTensorView keys_input = KeysInput(context_, layer_, input);
    KeyValueGradients(context_, keys_input, {scratch_.dk, scratch_.dv}, {g.k, g.v},
                      {g.k_bias, g.v_bias});
    AdapterGradients(context_, keys_input, scratch_.dk, w_.k_adapter, g.k_adapter,
                     scratch_.low_rank_k);
    AdapterGradients(context_, keys_input, scratch_.dv, w_.v_adapter, g.v_adapter,
                     scratch_.low_rank_v);
    if (tables_.relative.num_tables() > 0) {
      const ConstTensorView encodings = tables_.relative.encodings();
      const TensorView drelative = UsedDistances(tables_, scratch_.drelative);
      ProjectionGradients(context_, encodings, drelative, g.r, TensorView());
      AdapterGradients(context_, encodings, drelative, w_.r_adapter, g.r_adapter,
                       scratch_.low_rank);
    }
    if (context_.shape.has_global_rows(layer_)) {
      GlobalBackward(g, input, keys_input, target);
    } else {
      Clear(context_, {g.global_q, g.global_k, g.global_v, g.global_q_bias, g.global_k_bias,
                       g.global_v_bias});
    }
    KeysBackward(target);
    if (!pre_norm) return;
    InputNormBackward(target);
    AddResidual(context_, dmiddle, residual);
  }

 private:
  // `input` [n, d] is what the projection multiplied; target = beta * target + what comes through
  // it.
  void QueryBackward(const LayerGradients& g, ConstTensorView input, ConstTensorView dq,
                     TensorView target) const {
    ProjectionGradients(context_, input, dq, g.q, g.q_bias);
    backend_.Gemm({.a = dq,
                   .b = w_.q,
                   .transpose_b = true,
                   .beta = context_.shape.model.pre_norm() ? 0.0f : 1.0f,
                   .c = target},
                  context_.stream);
    const TensorView dlow =
        AdapterGradients(context_, input, dq, w_.q_adapter, g.q_adapter, scratch_.low_rank);
    AddThroughAdapter(context_, dlow, w_.q_adapter, target);
  }

  kernels::AttentionInputs Inputs() const {
    const PositionTables& relative = tables_.relative;
    kernels::AttentionInputs in;
    tables_.plans.SetInputs(AttentionPlans::ArrangementOf(context_.shape, layer_), &in);
    in.q = a_.q;
    const bool is_cached = context_.cache != nullptr;
    in.k = is_cached ? context_.cache->layers[layer_].k : a_.k;
    in.v = is_cached ? context_.cache->layers[layer_].v : a_.v;
    if (relative.num_tables() > 0) {
      in.relative = a_.relative.Slice(
          0, {relative.num_tables(), in.shape.num_distances, context_.shape.heads_dim()});
      in.table_of_lane = relative.table_of_lane();
    }
    if (!tables_.bias.spread().is_null()) {
      in.distance_bias = tables_.bias.spread();
      in.min_bias_distance = tables_.bias.min_distance();
      in.table_of_lane = context_.device.direction.data();
    }
    in.content_bias = w_.content_bias;
    in.position_bias = w_.position_bias;
    in.segment_bias = w_.segment_bias;
    in.segment_embedding = w_.segment_embedding;
    const int64_t heads = context_.shape.model.num_heads;
    const kernels::Band* const bands = tables_.bands.data();
    if (bands != nullptr) in.bands = bands + layer_ * heads;
    in.seen_share = tables_.SeenShare(layer_, heads, in.shape.num_keys);
    return Scaled(in, DropoutPlace::kAttentionProbabilities, sublayer_.row_ids);
  }
  kernels::AttentionInputs GlobalInputs() const {
    kernels::AttentionInputs in;
    tables_.plans.SetInputs(AttentionPlans::kGlobalSlots, &in);
    in.q = a_.global_q;
    in.k = a_.global_k;
    in.v = a_.global_v;
    return Scaled(in, DropoutPlace::kGlobalProbabilities, tables_.globals.row_ids());
  }
  kernels::AttentionInputs Scaled(kernels::AttentionInputs in, DropoutPlace place,
                                  const int32_t* row_ids) const {
    const auto head_dim = static_cast<double>(context_.shape.model.head_dim);
    in.scale = static_cast<float>(1.0 / std::sqrt(head_dim));
    in.dropout = context_.AttentionDropout(DropoutSite(layer_, place));
    in.row_ids = row_ids;
    return in;
  }

  // Of the rows that the layer computes; null without rotary positions.
  ConstTensorView QueryAngles() const {
    const ConstTensorView angles = tables_.rotary.rows();
    if (angles.is_null()) return angles;
    return angles.Slice(first_ * angles.dim(1), {rows_, angles.dim(1)});
  }

  // A head's part of a row as a row of its own: [rows * heads, D].
  TensorView PerHead(const TensorView& x) const {
    const int64_t head_dim = context_.shape.model.head_dim;
    return x.Reshape({x.num_elements() / head_dim, head_dim});
  }
  // The RMSNorm of each head's queries, or keys.
  NormTensors HeadsNorm(ConstTensorView gamma, const TensorView& raw, TensorView rstd) const {
    return {{gamma, {}}, {PerHead(raw), {}, rstd}};
  }
  NormTensors QueryNorm() const { return HeadsNorm(w_.q_norm, a_.raw_q, a_.q_rstd); }
  NormTensors KeyNorm() const { return HeadsNorm(w_.k_norm, a_.raw_k, a_.k_rstd); }
  bool has_qk_norm() const { return context_.shape.model.qk_norm; }

  // q, k, v and r of the layer; `input` are the rows that it computes.
  void Project(TensorView input, ConstTensorView keys_input) const {
    ProjectKeyValue(context_, keys_input, {w_.k, w_.v}, {w_.k_bias, w_.v_bias},
                    {has_qk_norm() ? a_.raw_k : a_.k, a_.v});
    AddAdapter(context_, keys_input, w_.k_adapter, has_qk_norm() ? a_.raw_k : a_.k);
    AddAdapter(context_, keys_input, w_.v_adapter, a_.v);
    const bool has_tables = context_.cache != nullptr && context_.cache->has_tables;
    if (tables_.relative.num_tables() > 0 && !has_tables) {
      const ConstTensorView encodings = tables_.relative.encodings();
      const TensorView relative = UsedDistances(tables_, a_.relative);
      backend_.Gemm({.a = encodings, .b = w_.r, .c = relative}, context_.stream);
      AddAdapter(context_, encodings, w_.r_adapter, relative);
    }
    const TensorView queries = has_qk_norm() ? a_.raw_q : a_.q;
    backend_.Gemm({.a = input, .b = w_.q, .bias = w_.q_bias, .c = queries}, context_.stream);
    AddAdapter(context_, input, w_.q_adapter, queries);
    if (has_qk_norm()) {
      NormForward(context_, QueryNorm(), PerHead(a_.q));
      NormForward(context_, KeyNorm(), PerHead(a_.k));
    }
    Rotate(context_, a_.q, QueryAngles(), /*inverse=*/false);
    Rotate(context_, a_.k, tables_.rotary.keys(), /*inverse=*/false);
    if (context_.cache != nullptr) StoreKeys(*context_.cache);
  }

  // Puts the keys and values that the layer has just projected into the cache.
  void StoreKeys(const KeyCache& cache) const {
    const BatchShape& batch = context_.shape.batch;
    const int64_t columns = context_.shape.keys_dim();
    const int64_t row_elements = batch.content_rows * columns;
    const int64_t lane_elements = batch.num_keys() * columns;
    int64_t end = 0;
    // Lanes whose slots stand at the same place, as those of one example do, move together.
    for (int64_t first = 0; first < batch.batch_size; first = end) {
      const int64_t slot = cache.begin[first];
      ANYORDER_CHECK(slot >= 0 && slot + batch.content_rows <= batch.num_keys())
          << "key slots " << slot << "+" << batch.content_rows << " of " << batch.num_keys();
      for (end = first + 1; end < batch.batch_size && cache.begin[end] == slot;) ++end;
      const auto store = [&](ConstTensorView from, TensorView to) {
        backend_.CopyRows({.source = from,
                           .source_begin = first * row_elements,
                           .source_stride = row_elements,
                           .destination = to,
                           .destination_begin = first * lane_elements + slot * columns,
                           .destination_stride = lane_elements,
                           .rows = end - first,
                           .columns = row_elements},
                          context_.stream);
      };
      store(a_.k, cache.layers[layer_].k);
      store(a_.v, cache.layers[layer_].v);
    }
  }

  // Biases that all layers share are added to, by way of a scratch.
  void CoreBackward(const LayerGradients& g) const {
    const int64_t columns = context_.shape.heads_dim();
    const std::array<TensorView, 3> sums = {g.content_bias, g.position_bias, g.segment_bias};
    std::array<TensorView, 3> biases = sums;
    for (size_t i = 0; i < biases.size() && !context_.shape.model.untie_r; ++i) {
      if (!sums[i].is_null())
        biases[i] = scratch_.dbiases.Slice(static_cast<int64_t>(i) * columns, {columns});
    }
    kernels::AttentionBackwardArgs args;
    args.in = Inputs();
    args.out = a_.attended;
    args.lse = a_.lse;
    args.dout = Rows(scratch_.dattended, 0, rows_);
    args.dq = Rows(scratch_.dq, 0, rows_);
    args.dk = scratch_.dk;
    args.dv = scratch_.dv;
    if (!args.in.relative.is_null())
      args.drelative = scratch_.drelative.Slice(0, args.in.relative.shape());
    args.dcontent_bias = biases[0];
    args.dposition_bias = biases[1];
    args.dsegment_bias = biases[2];
    args.dsegment_embedding = g.segment_embedding;
    args.ddistance_bias = tables_.bias.dspread();
    args.workspace = scratch_.workspace;
    backend_.AttentionBackward(args, context_.stream);
    tables_.bias.AddGradient(context_, g.distance_bias);
    for (size_t i = 0; i < biases.size() && !context_.shape.model.untie_r; ++i)
      if (!sums[i].is_null()) backend_.Add(sums[i], biases[i], sums[i], context_.stream);
    Rotate(context_, args.dq, QueryAngles(), /*inverse=*/true);
    Rotate(context_, args.dk, tables_.rotary.keys(), /*inverse=*/true);
    if (!has_qk_norm()) return;
    const TensorView dq = PerHead(args.dq), dk = PerHead(args.dk);
    NormBackward(context_, QueryNorm(), {g.q_norm, {}}, dq, dq);
    NormBackward(context_, KeyNorm(), {g.k_norm, {}}, dk, dk);
  }

  // Of each lane's keys those from `first_key` on, as many as `target` [B * rows, d] has rows of a
  // lane: target = beta * target + dk Wk^T + dv Wv^T, and the same of global projections. One
  // product of all lanes each.
  void AddKeyGradients(int64_t first_key, TensorView target, float beta) const {
    const BatchShape& batch = context_.shape.batch;
    // Lanes without other keys between them are one long lane.
    const bool lanes_touch = target.dim(0) == batch.batch_size * batch.num_keys();
    const int64_t lanes = lanes_touch ? 1 : batch.batch_size;
    const int64_t rows = target.dim(0) / lanes;
    // `weight` is stored [d, columns of the gradient], an adapter's the other way.
    const auto add = [&](const TensorView& gradient, ConstTensorView weight, float scale,
                         bool is_adapter = false) {
      if (weight.is_null()) return;
      backend_.Gemm({.a = Rows(gradient, first_key, rows),
                     .b = weight,
                     .transpose_b = !is_adapter,
                     .beta = scale,
                     .c = Rows(target, 0, rows),
                     .batch = {.count = lanes,
                               .a = batch.num_keys() * gradient.dim(1),
                               .c = rows * target.dim(1)}},
                    context_.stream);
    };
    add(scratch_.dk, w_.k, beta);
    add(scratch_.dv, w_.v, 1.0f);
    add(scratch_.low_rank_k, w_.k_adapter.a, 1.0f, /*is_adapter=*/true);
    add(scratch_.low_rank_v, w_.v_adapter.a, 1.0f, /*is_adapter=*/true);
    if (!context_.shape.has_global_rows(layer_)) return;
    add(scratch_.dglobal_k, w_.global_k, 1.0f);
    add(scratch_.dglobal_v, w_.global_v, 1.0f);
  }

  // Gradient through keys and values into `target` [N, d]. Memory rows, which stand between the
  // lanes, take none.
  void KeysBackward(TensorView target) const {
    const BatchShape& batch = context_.shape.batch;
    // Nothing has written the content rows yet if the layer computes query rows only.
    const float content_beta = first_ == 0 ? 1.0f : 0.0f;
    const int64_t num_content = batch.batch_size * batch.content_rows;
    AddKeyGradients(batch.memory_rows, Rows(target, 0, num_content), content_beta);
    if (!batch.query_is_key) return;
    AddKeyGradients(batch.memory_rows + batch.content_rows,
                    Rows(target, num_content, batch.batch_size * batch.query_rows), 1.0f);
  }

  // From the gradient of the normalised input to that of the input. Memory takes none, but the
  // LayerNorm's parameters have one through it.
  void InputNormBackward(ConstTensorView dnormed) const {
    const NormGradients& sums = sublayer_.gradients;
    NormBackward(context_, sublayer_.before, sums, dnormed, scratch_.dinput);
    if (context_.shape.batch.memory_rows == 0) return;
    AddKeyGradients(0, scratch_.dmemory, 0.0f);
    const int64_t dim = context_.model_dim();
    NormGradients part{scratch_.dnorm.Slice(0, {dim}), {}};
    if (!sums.beta.is_null()) part.beta = scratch_.dnorm.Slice(dim, {dim});
    NormBackward(context_, {w_.attention_norm, scratch_.memory_norm}, part, scratch_.dmemory,
                 scratch_.dmemory);
    backend_.Add(sums.gamma, part.gamma, sums.gamma, context_.stream);
    if (!sums.beta.is_null()) backend_.Add(sums.beta, part.beta, sums.beta, context_.stream);
  }

  const int32_t* slots() const { return context_.device.global_slots.data(); }
  int64_t num_slots() const { return static_cast<int64_t>(context_.batch().global_slots.size()); }

  // Adds the global rows to `attended`. `input` [N, d] is what the layer's projections multiply,
  // `keys_input` [B * K, d] the same for keys.
  void GlobalForward(ConstTensorView input, ConstTensorView keys_input) const {
    const TensorView rows = scratch_.global_input;
    GatherRows(context_, input, slots(), num_slots(), rows);
    backend_.Gemm({.a = rows, .b = w_.global_q, .bias = w_.global_q_bias, .c = a_.global_q},
                  context_.stream);
    ProjectKeyValue(context_, keys_input, {w_.global_k, w_.global_v},
                    {w_.global_k_bias, w_.global_v_bias}, {a_.global_k, a_.global_v});
    Rotate(context_, a_.global_q, tables_.globals.angles(), /*inverse=*/false);
    Rotate(context_, a_.global_k, tables_.rotary.keys(), /*inverse=*/false);
    backend_.AttentionForward(
        {.in = GlobalInputs(), .out = a_.global_attended, .lse = a_.global_lse}, context_.stream);
    ScatterRows(context_, a_.global_attended, slots(), num_slots(), a_.attended);
  }

  // From activations.dattended: overwrites the gradients of global_q, global_k, global_v and their
  // biases, adds to `dinput` [N, d] what comes through global_q, and leaves the gradients of keys
  // and values in activations.dglobal_k and dglobal_v.
  void GlobalBackward(const LayerGradients& g, ConstTensorView input, ConstTensorView keys_input,
                      TensorView dinput) const {
    GatherRows(context_, scratch_.dattended, slots(), num_slots(), scratch_.dglobal_attended);
    kernels::AttentionBackwardArgs args;
    args.in = GlobalInputs();
    args.out = a_.global_attended;
    args.lse = a_.global_lse;
    args.dout = scratch_.dglobal_attended;
    args.dq = scratch_.dglobal_q;
    args.dk = scratch_.dglobal_k;
    args.dv = scratch_.dglobal_v;
    args.workspace = scratch_.workspace;
    backend_.AttentionBackward(args, context_.stream);
    Rotate(context_, scratch_.dglobal_q, tables_.globals.angles(), /*inverse=*/true);
    Rotate(context_, scratch_.dglobal_k, tables_.rotary.keys(), /*inverse=*/true);

    const TensorView rows = scratch_.global_input;
    GatherRows(context_, input, slots(), num_slots(), rows);
    ProjectionGradients(context_, rows, scratch_.dglobal_q, g.global_q, g.global_q_bias);
    KeyValueGradients(context_, keys_input, {scratch_.dglobal_k, scratch_.dglobal_v},
                      {g.global_k, g.global_v}, {g.global_k_bias, g.global_v_bias});
    backend_.Gemm({.a = scratch_.dglobal_q, .b = w_.global_q, .transpose_b = true, .c = rows},
                  context_.stream);
    ScatterRows(context_, rows, slots(), num_slots(), dinput);
  }

  const StepContext& context_;
  kernels::Backend& backend_;
  const AttentionTables& tables_;
  const int64_t layer_, first_, rows_;
  const Activations& scratch_;
  const LayerActivations& a_;
  const LayerWeights& w_;
  Sublayer sublayer_;
};

}  // namespace

void AttentionBlockForward(const StepContext& context, const AttentionTables& tables,
                           int64_t layer) {
  AttentionBlock(context, tables, layer).Forward();
}

void AttentionBlockRecompute(const StepContext& context, const AttentionTables& tables,
                             int64_t layer) {
  AttentionBlock(context, tables, layer).MakeAgain();
}

void AttentionBlockBackward(const StepContext& context, const AttentionTables& tables,
                            int64_t layer) {
  AttentionBlock(context, tables, layer).Backward();
}

}  // namespace anyorder
