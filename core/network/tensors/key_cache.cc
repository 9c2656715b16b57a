#include "core/network/tensors/key_cache.h"

#include "core/base/check.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

void StoreKeys(const StepContext& context, int64_t layer) {
  const BatchShape& batch = context.shape.batch;
  const KeyCache& cache = *context.cache;
  const LayerActivations& a = context.activations.layers[layer];
  const int64_t columns = context.shape.keys_dim();
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
      context.backend.CopyRows({.source = from,
                                .source_begin = first * row_elements,
                                .source_stride = row_elements,
                                .destination = to,
                                .destination_begin = first * lane_elements + slot * columns,
                                .destination_stride = lane_elements,
                                .rows = end - first,
                                .columns = row_elements},
                               context.stream);
    };
    store(a.k, cache.layers[layer].k);
    store(a.v, cache.layers[layer].v);
  }
}

}  // namespace anyorder
