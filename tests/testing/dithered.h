// Neighbours of numbers, no further away than storing would move them.

#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/philox.h"

namespace anyorder::testing {

// Each moved by up to half the distance of the numbers around it whose significand has
// `stored_bits` bits: 8 in bf16, 24 in fp32. Infinities stay.
inline std::vector<double> Dithered(std::vector<double> values, uint64_t seed,
                                    int stored_bits = 8) {
  RandomStream random(seed, RandomPurpose::kInit, 1, 0);
  for (double& value : values)
    if (value != 0 && std::isfinite(value))
      value += std::ldexp(random.Uniform() - 0.5, std::ilogb(value) + 1 - stored_bits);
  return values;
}

}  // namespace anyorder::testing
