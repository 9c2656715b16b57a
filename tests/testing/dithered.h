// Neighbours of numbers, no further away than rounding to bf16 would move them.

#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/philox.h"

namespace anyorder::testing {

// Each moved by up to half the distance of bf16's numbers around it.
inline std::vector<double> Dithered(std::vector<double> values, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kInit, 1, 0);
  for (double& value : values)
    if (value != 0) value += std::ldexp(random.Uniform() - 0.5, std::ilogb(value) - 7);
  return values;
}

}  // namespace anyorder::testing
