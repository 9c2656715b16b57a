#include "core/model/recurrence.h"

#include <algorithm>

namespace anyorder {
namespace {

// The same span of rows in every lane, moved as one long row a lane.
struct LaneSpan {
  int64_t begin = 0;   // element of lane 0's first row
  int64_t stride = 0;  // elements from lane to lane
};

void CopyLanes(const StepContext& context,
               ConstTensorView source,
               LaneSpan from,
               TensorView destination,
               LaneSpan to,
               int64_t rows) {
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

// Row `row` of `layer` in a memory tensor.
LaneSpan MemorySpan(const StepContext& context, int64_t layer, int64_t row) {
  const int64_t dim = context.model_dim();
  const int64_t memory = context.shape.batch.memory_rows;
  return {(layer * memory + row) * dim, context.shape.model.num_layers * memory * dim};
}

}  // namespace

NormTensors MemoryNorm(const StepContext& context, const LayerTensors<ConstTensorView>& weights) {
  const Activations& a = context.activations;
  return {weights.attention_norm_gamma,
          weights.attention_norm_beta,
          a.memory,
          a.memory_mean,
          a.memory_rstd};
}

ConstTensorView KeysInput(const StepContext& context,
                          int64_t layer,
                          const LayerTensors<ConstTensorView>& weights,
                          TensorView input) {
  const BatchShape& batch = context.shape.batch;
  const int64_t dim = context.model_dim();
  const int64_t content = batch.content_rows;
  const int64_t memory = batch.memory_rows;
  if (memory == 0 && !batch.query_is_key) return Rows(input, 0, batch.batch_size * content);
  const TensorView keys = context.activations.keys_input;
  const int64_t stride = batch.num_keys() * dim;
  const LaneSpan memory_span = MemorySpan(context, layer, 0);
  if (context.shape.model.pre_norm() && memory > 0) {
    const Activations& a = context.activations;
    const LaneSpan dense{0, memory * dim};
    CopyLanes(context, context.args.memory_in, memory_span, a.memory, dense, memory);
    NormForward(context, MemoryNorm(context, weights), a.memory_normed);
    CopyLanes(context, a.memory_normed, dense, keys, {0, stride}, memory);
  } else {
    CopyLanes(context, context.args.memory_in, memory_span, keys, {0, stride}, memory);
  }
  CopyLanes(context, input, {0, content * dim}, keys, {memory * dim, stride}, content);
  if (batch.query_is_key) {
    CopyLanes(context,
              input,
              {batch.batch_size * content * dim, batch.query_rows * dim},
              keys,
              {(memory + content) * dim, stride},
              batch.query_rows);
  }
  return keys;
}

void AdvanceMemory(const StepContext& context, int64_t layer) {
  const BatchShape& batch = context.shape.batch;
  const TensorView memory_out = context.args.memory_out;
  if (batch.memory_rows == 0 || memory_out.is_null()) return;
  const int64_t dim = context.model_dim();
  const int64_t fresh = std::min(batch.advance, batch.memory_rows);
  const int64_t kept = batch.memory_rows - fresh;
  CopyLanes(context,
            context.args.memory_in,
            MemorySpan(context, layer, fresh),
            memory_out,
            MemorySpan(context, layer, 0),
            kept);
  CopyLanes(context,
            context.activations.layers[layer].input,
            {(batch.advance - fresh) * dim, batch.content_rows * dim},
            memory_out,
            MemorySpan(context, layer, kept),
            fresh);
}

}  // namespace anyorder
