// A thread's index as (row, place in the row).

#pragma once

#include <cstdint>

#include "kernels/cuda/platform/simt.h"

namespace anyorder::kernels::cuda {

struct Quotient {
  int64_t quotient;
  int64_t remainder;
};
// `index` < `limit`, which is the same for all threads of a launch: where it is small, and that is
// nearly always, threads are spared a division of 64 bits, which is a hundred instructions.
ANYORDER_HOST_DEVICE Quotient Divide(int64_t index, int64_t divisor, int64_t limit) {
  if (limit <= int64_t{0xffffffff}) {
    const auto small = static_cast<uint32_t>(index);
    const auto by = static_cast<uint32_t>(divisor);
    const uint32_t quotient = small / by;
    return {quotient, small - quotient * by};
  }
  const int64_t quotient = index / divisor;
  return {quotient, index - quotient * divisor};
}

}  // namespace anyorder::kernels::cuda
