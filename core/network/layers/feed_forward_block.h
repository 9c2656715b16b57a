// Position-wise feed-forward with its residual and LayerNorm (operations.h), both streams at once:
//   part(x) = dropout(act(x W1^T + b1)) W2^T + b2

#pragma once

#include "core/network/layers/adapter.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

inline Sublayer FeedForwardSublayer(const StepContext& context, int64_t layer) {
  const LayerActivations& a = context.activations.layers[layer];
  const LayerWeights& w = context.weights.layers[layer];
  Sublayer sublayer;
  sublayer.before = {w.ffn_norm, {a.attention_output, a.ffn_norm.mean, a.ffn_norm.rstd}};
  sublayer.normed = a.ffn_normed;
  sublayer.after = {w.ffn_norm, a.ffn_norm};
  sublayer.dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardOutput));
  sublayer.row_ids = context.device.row_ids.data() + context.shape.first_row(layer);
  if (!context.learns()) return sublayer;
  sublayer.gradients = context.gradients.layers[layer].ffn_norm;
  return sublayer;
}

// Writes ffn_hidden, from ffn_inner alone if that is there. Returns what the part multiplies.
inline TensorView FeedForwardHidden(const StepContext& context, int64_t layer,
                                    const Sublayer& sublayer, bool has_inner = false) {
  const LayerActivations& a = context.activations.layers[layer];
  const LayerWeights& w = context.weights.layers[layer];
  const TensorView input = EnterSublayer(context, sublayer);
  const bool is_gated = context.shape.model.gated_ffn;
  const TensorView up = is_gated ? a.ffn_factor : a.ffn_inner;
  if (!has_inner) {
    if (is_gated) {
      Dense(context, input, w.ffn_gate, w.ffn_gate_bias, a.ffn_inner);
      AddAdapter(context, input, w.gate_adapter, a.ffn_inner);
    }
    Dense(context, input, w.ffn_in, w.ffn_in_bias, up);
    AddAdapter(context, input, w.up_adapter, up);
  }
  context.backend.ActivationForward(
      {.activation = context.shape.model.activation,
       .x = a.ffn_inner,
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardHidden)),
       .row_ids = sublayer.row_ids,
       .y = a.ffn_hidden,
       .factor = a.ffn_factor},
      context.stream);
  return input;
}

// Reads the layer's attention_output; writes `output` [n, d].
inline void FeedForwardBlockForward(const StepContext& context, int64_t layer, TensorView output) {
  const LayerActivations& a = context.activations.layers[layer];
  const LayerWeights& w = context.weights.layers[layer];
  const Sublayer sublayer = FeedForwardSublayer(context, layer);
  const TensorView branch = Rows(context.activations.branch, 0, context.shape.num_rows(layer));

  const TensorView input = FeedForwardHidden(context, layer, sublayer);
  Dense(context, a.ffn_hidden, w.ffn_out, w.ffn_out_bias, branch);
  AddAdapter(context, a.ffn_hidden, w.down_adapter, branch);
  const bool adds_normed = context.shape.model.ffn_residual == FfnResidual::kNormed;
  LeaveSublayer(context, sublayer, branch, adds_normed ? input : a.attention_output, output);
}

// Computes again what backward reads of the part and its forward did not keep
// (NetworkShape::OverlaidPart): the same bits. REQUIRES: attention_output is there.
inline void FeedForwardBlockRecompute(const StepContext& context, int64_t layer) {
  const bool has_inner = context.shape.OverlaidPart(layer) == Recompute::kElementwise;
  if (has_inner || context.shape.model.pre_norm()) {
    FeedForwardHidden(context, layer, FeedForwardSublayer(context, layer), has_inner);
  } else {
    // LayerNorm's backward reads the sum at the end. The output is there and gets the same bits.
    FeedForwardBlockForward(context, layer, context.activations.layers[layer + 1].input);
  }
}

// Reads activations.dinput (gradient of the layer's output in its first n rows), writes
// activations.dmiddle (gradient of attention_output) and overwrites the layer's feed-forward
// gradients.
inline void FeedForwardBlockBackward(const StepContext& context, int64_t layer) {
  kernels::Backend& backend = context.backend;
  Activations& scratch = context.activations;
  const LayerActivations& a = scratch.layers[layer];
  const LayerWeights& w = context.weights.layers[layer];
  const LayerGradients& g = context.gradients.layers[layer];
  const Sublayer sublayer = FeedForwardSublayer(context, layer);
  const int64_t rows = context.shape.num_rows(layer);
  const TensorView dbranch = Rows(scratch.branch, 0, rows);
  const bool is_gated = context.shape.model.gated_ffn;
  const TensorView dhidden = Rows(scratch.dffn, 0, rows);
  const TensorView dfactor = is_gated ? Rows(scratch.dfactor, 0, rows) : TensorView();
  const TensorView doutput = Rows(scratch.dinput, 0, rows);
  const TensorView dmiddle = Rows(scratch.dmiddle, 0, rows);
  const bool pre_norm = context.shape.model.pre_norm();

  LeaveSublayerBackward(context, sublayer, doutput, dbranch, dmiddle);
  DenseBackward(context, a.ffn_hidden, dbranch, {w.ffn_out, w.down_adapter},
                {g.ffn_out, g.ffn_out_bias, g.down_adapter}, 0.0f, dhidden);
  backend.ActivationBackward(
      {.activation = context.shape.model.activation,
       .x = a.ffn_inner,
       .dy = dhidden,
       .dropout = context.Dropout(DropoutSite(layer, DropoutPlace::kFeedForwardHidden)),
       .row_ids = sublayer.row_ids,
       .dx = dhidden,
       .factor = a.ffn_factor,
       .dfactor = dfactor},
      context.stream);
  const TensorView input = sublayer.Input(context);
  // Post-LN has left the residual's gradient there.
  float beta = pre_norm ? 0.0f : 1.0f;
  if (is_gated) {
    DenseBackward(context, input, dhidden, {w.ffn_gate, w.gate_adapter},
                  {g.ffn_gate, g.ffn_gate_bias, g.gate_adapter}, beta, dmiddle);
    beta = 1.0f;
  }
  DenseBackward(context, input, is_gated ? dfactor : dhidden, {w.ffn_in, w.up_adapter},
                {g.ffn_in, g.ffn_in_bias, g.up_adapter}, beta, dmiddle);
  const bool adds_normed = context.shape.model.ffn_residual == FfnResidual::kNormed;
  if (adds_normed) AddResidual(context, doutput, dmiddle);
  if (pre_norm) NormBackward(context, sublayer.before, sublayer.gradients, dmiddle, dmiddle);
  if (!adds_normed) AddResidual(context, doutput, dmiddle);
}

}  // namespace anyorder
