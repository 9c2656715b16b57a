// Weights that two implementations compute alike from names: golden/FORMAT.md.

#pragma once

#include <cstdint>

#include "absl/strings/match.h"

#include "core/network/tensors/parameters.h"

namespace anyorder::testing {

// Section "Weights". Writes all elements of the parameter.
inline void FillHashed(const ParameterInfo& info, float* out) {
  uint32_t key = 2166136261u;
  for (const char c : info.name) key = (key ^ static_cast<uint8_t>(c)) * 16777619u;
  const bool is_scale = absl::EndsWith(info.name, "layer_norm.weight");
  for (int64_t i = 0; i < info.shape.num_elements(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9E3779B9u + key;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    x ^= x >> 16;
    const double unit = static_cast<double>(x >> 8) / 8388608.0 - 1.0;
    out[i] = static_cast<float>(is_scale ? 1.0 + unit / 4 : unit / 2);
  }
}

}  // namespace anyorder::testing
