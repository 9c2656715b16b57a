#include "core/generate/key_storage.h"

#include "core/base/status.h"
#include "core/network/tensors/device_inputs.h"

namespace anyorder {

absl::StatusOr<KeyStorage> AllocateKeys(const NetworkShape& shape, kernels::Backend& backend) {
  const Shape keys{shape.batch.batch_size, shape.batch.cached_keys, shape.keys_dim()};
  const int64_t bytes = AlignedBytes(keys.num_elements() * SizeOf(shape.dtype()));
  KeyStorage storage;
  ANYORDER_ASSIGN_OR_RETURN(storage.buffer, backend.Allocate(2 * shape.model.num_layers * bytes));
  char* place = static_cast<char*>(storage.buffer->data());
  const auto take = [&] {
    const TensorView view(place, shape.dtype(), keys);
    place += bytes;
    return view;
  };
  for (int64_t layer = 0; layer < shape.model.num_layers; ++layer) {
    const TensorView k = take();
    storage.cache.layers.push_back({k, take()});
  }
  storage.cache.begin.assign(static_cast<size_t>(shape.batch.batch_size), 0);
  return storage;
}

}  // namespace anyorder
