// The memory of a KeyCache.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "core/network/tensors/key_cache.h"
#include "core/network/tensors/network_shape.h"
#include "kernels/backend.h"

namespace anyorder {

struct KeyStorage {
  std::unique_ptr<kernels::Buffer> buffer;
  KeyCache cache;  // begins are 0
};

// Keys and values [B, shape.batch.cached_keys, H*D] of each layer. ResourceExhausted.
absl::StatusOr<KeyStorage> AllocateKeys(const NetworkShape& shape, kernels::Backend& backend);

}  // namespace anyorder
