// What the parts of the network ask of a backend, in their terms: dense layers, LayerNorms, rows
// moved, and what stands around both parts of a layer, attention and feed-forward:
//   post-LN (Vaswani et al. 2017; XLNet, BERT):         y = LayerNorm(x + dropout(part(x)))
//   pre-LN (Longformer's character model, option of
//           Transformer-XL):                            y = x + dropout(part(LayerNorm(x)))
// A pre-LN network has one more LayerNorm after its last layer. LayerNorm is RMSNorm where the
// model says so (ModelConfig::norm). All matrices are [rows, columns] T, gradients of parameters G.
// Biases, their gradients, those of frozen weights and those of a LayerNorm's input may be null.

#pragma once

#include <cstdint>

#include "core/network/tensors/device_inputs.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

// y = x weight^T + bias: dense layers and tied tables.
inline void Dense(const StepContext& context, ConstTensorView x, ConstTensorView weight,
                  ConstTensorView bias, TensorView y) {
  context.backend.Gemm({.a = x, .b = weight, .transpose_b = true, .bias = bias, .c = y},
                       context.stream);
}
// Overwrites dweight and dbias, those of them that are not null, from dy, the gradient of such a y.
void DenseGradients(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                    TensorView dweight, TensorView dbias);
// The gradients of a projection y = x weight + bias.
void ProjectionGradients(const StepContext& context, ConstTensorView x, ConstTensorView dy,
                         TensorView dweight, TensorView dbias);

// Keys' and values' tensors. The values' lie behind the keys', in one allocation: both projections
// are one call.
template <typename View>
struct KeyValue {
  View k;
  View v;
};
// y.k = x w.k + bias.k, and the same of v.
void ProjectKeyValue(const StepContext& context, ConstTensorView x,
                     const KeyValue<ConstTensorView>& weights,
                     const KeyValue<ConstTensorView>& biases, const KeyValue<TensorView>& y);
void KeyValueGradients(const StepContext& context, ConstTensorView x,
                       const KeyValue<ConstTensorView>& dy, const KeyValue<TensorView>& dweights,
                       const KeyValue<TensorView>& dbiases);

// y[i] = x[rows[i]], for `count` rows.
inline void GatherRows(const StepContext& context, ConstTensorView x, const int32_t* rows,
                       int64_t count, TensorView y) {
  context.backend.GatherRows({.x = x, .rows = rows, .num_rows = count, .y = y}, context.stream);
}
// y[rows[i]] += x[i]. REQUIRES: these rows differ.
inline void ScatterRows(const StepContext& context, ConstTensorView x, const int32_t* rows,
                        int64_t count, TensorView y) {
  context.backend.GatherRows({.x = x, .rows = rows, .num_rows = count, .scatter_add = true, .y = y},
                             context.stream);
}
// x = dropout(x); its own backward. Nothing where there is none.
inline void DropRows(const StepContext& context, const kernels::Dropout& dropout,
                     const int32_t* row_ids, TensorView x) {
  if (!dropout.enabled()) return;
  context.backend.DropoutApply({.x = x, .dropout = dropout, .row_ids = row_ids, .y = x},
                               context.stream);
}
// y = dropout(tanh(x)).
void TanhForward(const StepContext& context, ConstTensorView x, TensorView y,
                 const kernels::Dropout& dropout = {}, const int32_t* row_ids = nullptr);
// The gradient of that y becomes the one of x, in place.
void TanhBackward(const StepContext& context, ConstTensorView x, TensorView dy,
                  const kernels::Dropout& dropout = {}, const int32_t* row_ids = nullptr);
// Zeros, in those that are not null.
inline void Clear(const StepContext& context, std::initializer_list<TensorView> tensors) {
  for (const TensorView& tensor : tensors)
    if (!tensor.is_null()) context.backend.FillZero(tensor, context.stream);
}
// Turns x in place, or back for a gradient; nothing if `angles` is null.
void Rotate(const StepContext& context, TensorView x, ConstTensorView angles, bool inverse);
// A softmax's losses and, where the step learns, the gradients of `args`.
void SoftmaxLosses(const StepContext& context, kernels::LinearCrossEntropyArgs args);

// One LayerNorm's parameters and what its forward keeps.
struct NormTensors {
  NormParameters<ConstTensorView> parameters;
  NormActivations kept;
};
using NormGradients = NormParameters<TensorView>;  // overwritten
// y = LayerNorm(norm.kept.sum), or the model's RMSNorm, whose mean and beta are null.
void NormForward(const StepContext& context, const NormTensors& norm, TensorView y);
// dx from dy, which may be the same.
void NormBackward(const StepContext& context, const NormTensors& norm,
                  const NormGradients& gradients, ConstTensorView dy, TensorView dx);

// One part of a layer with its residual and LayerNorm; n rows are those that the layer computes.
struct Sublayer {
  NormTensors before;  // pre-LN only: of the part's input
  TensorView normed;   // [rows, d], what that gives
  NormTensors after;   // post-LN only: of [n, d]
  NormGradients gradients;
  kernels::Dropout dropout;  // of the part's result
  const int32_t* row_ids;    // [n] logical ids, for dropout

  // What the part multiplies.
  TensorView Input(const StepContext& context) const {
    return context.shape.model.pre_norm() ? normed : before.kept.sum;
  }
};
// Sublayer::Input, computed.
inline TensorView EnterSublayer(const StepContext& context, const Sublayer& sublayer) {
  if (context.shape.model.pre_norm()) NormForward(context, sublayer.before, sublayer.normed);
  return sublayer.Input(context);
}
// `branch` [n, d] is the part's result and is overwritten; x [n, d] its input; y [n, d] may not be
// either.
void LeaveSublayer(const StepContext& context, const Sublayer& sublayer, TensorView branch,
                   ConstTensorView x, TensorView y);
// From dy the gradient of the part's result. Post-LN also writes dx, the gradient along the
// residual; with pre-LN that is dy, which AddResidual adds once the gradient through the part is
// there.
void LeaveSublayerBackward(const StepContext& context, const Sublayer& sublayer, ConstTensorView dy,
                           TensorView dbranch, TensorView dx);
// dx += dy with pre-LN; nothing with post-LN.
inline void AddResidual(const StepContext& context, ConstTensorView dy, TensorView dx) {
  if (context.shape.model.pre_norm()) context.backend.Add(dx, dy, dx, context.stream);
}

// Rows of the last layer's output that a head reads, and the way of their gradients back.
class HeadRows {
 public:
  HeadRows(int64_t count, DeviceInputs& inputs) : rows_(count, inputs), ids_(count, inputs) {}

  int64_t size() const { return static_cast<int64_t>(rows_.host.size()); }
  // Entry `entry` reads row `row` of the batch and has the dropout of row `id_row`. Returns the row
  // of activations.output. REQUIRES: the last layer computes it. Send once all are set.
  int32_t Set(const StepContext& context, int64_t entry, int32_t row, int32_t id_row);
  void Send() {
    rows_.Set();
    ids_.Set();
  }

  // y[i] = output[row of entry i]
  void Gather(const StepContext& context, TensorView y) const {
    GatherRows(context, context.activations.output, rows_.data(), size(), y);
  }
  // Adds dy[i] to activations.dinput at the row of entry first + i. REQUIRES: these rows differ.
  void AddGradients(const StepContext& context, ConstTensorView dy, int64_t first = 0) const {
    const Activations& a = context.activations;
    ScatterRows(context, dy, rows_.data() + first, dy.dim(0), Rows(a.dinput, 0, a.output.dim(0)));
  }

  // The entries' logical ids.
  const int32_t* ids() const { return ids_.data(); }

 private:
  ComputedArray<int32_t> rows_;  // of activations.output
  ComputedArray<int32_t> ids_;
};

}  // namespace anyorder
