// Recurrence memory (Transformer-XL, Dai et al. 2019, section 3.2): each layer's input states of
// earlier segments, without gradient. Where they lie is memory_ring.h's.

#pragma once

#include "core/network/layers/operations.h"

namespace anyorder {

// The same span of rows in every lane, moved as one long row a lane.
struct LaneSpan {
  int64_t begin = 0;   // element of lane 0's first row
  int64_t stride = 0;  // elements from lane to lane
};

inline void CopyLanes(const StepContext& context, ConstTensorView source, LaneSpan from,
                      TensorView destination, LaneSpan to, int64_t rows) {
  if (rows == 0) return;
  context.backend.CopyRows({.source = source,
                            .source_begin = from.begin,
                            .source_stride = from.stride,
                            .destination = destination,
                            .destination_begin = to.begin,
                            .destination_stride = to.stride,
                            .rows = context.shape.batch.batch_size,
                            .columns = rows * context.model_dim()},
                           context.stream);
}

// Slot `slot` of `layer`'s rings.
inline LaneSpan SlotSpan(const StepContext& context, int64_t layer, int64_t slot) {
  const int64_t dim = context.model_dim();
  const int64_t ring = context.shape.batch.ring_rows();
  return {(layer * ring + slot) * dim, context.shape.model.num_layers * ring * dim};
}

// The states that the step reads, in their order.
inline void ReadMemory(const StepContext& context, int64_t layer, TensorView to,
                       int64_t lane_stride) {
  const RingView& memory = context.args.memory;
  LaneSpan at{0, lane_stride};
  for (const SlotRun& run : memory.Runs(0, context.shape.batch.memory_rows)) {
    CopyLanes(context, memory.slots, SlotSpan(context, layer, run.begin), to, at, run.rows);
    at.begin += run.rows * context.model_dim();
  }
}

// The input of a layer's keys and values: for each lane its memory of that layer, then its content
// rows (then its query rows, if those are keys) of `input` [N, d], the layer's input or, in a
// pre-LN network, that normalised. Memory is normalised here then. [B * K, d]; `input` itself where
// nothing has to be moved.
inline ConstTensorView KeysInput(const StepContext& context, int64_t layer, TensorView input) {
  const BatchShape& batch = context.shape.batch;
  const int64_t dim = context.model_dim();
  const int64_t content = batch.content_rows;
  const int64_t memory = batch.memory_rows;
  if (memory == 0 && !batch.query_is_key) return Rows(input, 0, batch.batch_size * content);
  const TensorView keys = context.activations.keys_input;
  const int64_t stride = batch.num_keys() * dim;
  if (context.shape.model.pre_norm() && memory > 0) {
    const Activations& a = context.activations;
    ReadMemory(context, layer, a.memory_norm.sum, memory * dim);
    NormForward(context, {context.weights.layers[layer].attention_norm, a.memory_norm},
                a.memory_normed);
    CopyLanes(context, a.memory_normed, {0, memory * dim}, keys, {0, stride}, memory);
  } else {
    ReadMemory(context, layer, keys, stride);
  }
  CopyLanes(context, input, {0, content * dim}, keys, {memory * dim, stride}, content);
  if (batch.query_is_key) {
    CopyLanes(context, input, {batch.batch_size * content * dim, batch.query_rows * dim}, keys,
              {(memory + content) * dim, stride}, batch.query_rows);
  }
  return keys;
}

// Into the free slots: the last F of the first U content rows of the layer's input. With those M
// states are the newest of [memory ; the U rows], which the next step reads.
inline void KeepStates(const StepContext& context, int64_t layer) {
  const BatchShape& batch = context.shape.batch;
  const RingView& memory = context.args.memory;
  const int64_t dim = context.model_dim();
  LaneSpan from{(batch.advance - batch.fresh_rows()) * dim, batch.content_rows * dim};
  for (const SlotRun& run : memory.Runs(batch.memory_rows, batch.fresh_rows())) {
    CopyLanes(context, context.activations.layers[layer].input, from, memory.slots,
              SlotSpan(context, layer, run.begin), run.rows);
    from.begin += run.rows * dim;
  }
}

}  // namespace anyorder
