// Keys and values of slots that were computed before: what generation keeps instead of the text so
// far. A slot's keys are final once they are computed, if no later slot may be seen by it; so the
// order of ranks is the order of the cache.
//
// B lanes, K key slots a lane, H heads, D head size.

#pragma once

#include <cstdint>
#include <vector>

#include "core/base/tensor.h"

namespace anyorder {

struct KeyCache {
  struct Layer {
    TensorView k, v;  // [B, K, H*D] T
  };
  std::vector<Layer> layers;
  // [B] the key slot where those of a lane's content rows go, one after the other; Batch's key
  // arrays describe where they stand.
  std::vector<int64_t> begin;
  // Whether the activations hold the projected position tables already; they depend on weights
  // alone.
  bool has_tables = false;
};

}  // namespace anyorder
