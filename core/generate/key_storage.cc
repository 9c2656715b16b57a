#include "core/generate/key_storage.h"

#include "core/base/status.h"
#include "core/network/tensors/device_inputs.h"

namespace anyorder {

absl::StatusOr<KeyStorage> KeyStorage::Allocate(const NetworkShape& shape,
                                                kernels::Backend& backend) {
  KeyStorage storage;
  storage.slots_ = shape.batch.cached_keys;
  storage.columns_ = shape.keys_dim();
  const int64_t size = SizeOf(shape.dtype());
  const int64_t lane_elements = storage.slots_ * storage.columns_;
  const Shape all{2 * shape.model.num_layers,
                  AlignedBytes(shape.batch.batch_size * lane_elements * size) / size};
  ASSIGN_OR_RETURN(storage.buffer_, backend.Allocate(all.num_elements() * size));
  storage.all_ = TensorView(storage.buffer_->data(), shape.dtype(), all);
  return storage;
}

KeyCache KeyStorage::FirstLanes(int64_t lanes) const {
  KeyCache cache;
  const Shape keys{lanes, slots_, columns_};
  for (int64_t layer = 0; layer < all_.dim(0) / 2; ++layer) {
    const int64_t begin = 2 * layer * all_.dim(1);
    cache.layers.push_back({all_.Slice(begin, keys), all_.Slice(begin + all_.dim(1), keys)});
  }
  cache.begin.assign(static_cast<size_t>(lanes), 0);
  return cache;
}

void KeyStorage::Copy(const KeyStorage& other, int64_t from, int64_t to, int64_t begin, int64_t end,
                      kernels::Backend& backend) {
  if (begin == end) return;
  backend.CopyRows({.source = other.all_,
                    .source_begin = (from * other.slots_ + begin) * columns_,
                    .source_stride = other.all_.dim(1),
                    .destination = all_,
                    .destination_begin = (to * slots_ + begin) * columns_,
                    .destination_stride = all_.dim(1),
                    .rows = all_.dim(0),
                    .columns = (end - begin) * columns_},
                   {});
}

}  // namespace anyorder
