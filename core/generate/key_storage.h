// The memory of kept keys and values.
//
// B lanes, K key slots a lane, H heads, D head size.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "core/network/tensors/key_cache.h"
#include "core/network/tensors/network_shape.h"
#include "kernels/backend.h"

namespace anyorder {

class KeyStorage {
 public:
  KeyStorage() = default;  // of no lanes
  // Keys and values [B, shape.batch.cached_keys, H*D] of each layer. ResourceExhausted.
  static absl::StatusOr<KeyStorage> Allocate(const NetworkShape& shape, kernels::Backend& backend);

  // What the first `lanes` lanes have; begins are 0.
  KeyCache FirstLanes(int64_t lanes) const;
  // Slots [begin, end) of lane `from` of `other`, which is of the same network, become those of
  // lane `to`. Lanes differ, or storages do.
  void Copy(const KeyStorage& other, int64_t from, int64_t to, int64_t begin, int64_t end,
            kernels::Backend& backend);

 private:
  std::unique_ptr<kernels::Buffer> buffer_;
  TensorView all_;     // [2 * layers, B*K*H*D and what aligns it] T: each layer's keys, its values
  int64_t slots_ = 0;  // K
  int64_t columns_ = 0;  // H*D
};

}  // namespace anyorder
