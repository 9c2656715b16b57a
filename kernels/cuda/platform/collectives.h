// What the lanes of a warp do together, once all of them are there.

#pragma once

#include <cstdint>

namespace anyorder::kernels::cuda::emulation {

enum class Collective {
  kSync,
  kShuffleXor,
  kLoadMatrices,
  kLoadMatricesTransposed,
  kMultiplyAccumulate
};

struct ShuffleIn {
  uint64_t bits;
  int mask;
};
struct MultiplyIn {
  uint32_t a[4];
  uint32_t b[2];
};

// A lane's operands: nothing, ShuffleIn and uint64_t, a row of a matrix and uint32_t[4], MultiplyIn
// and float[4].
struct Operands {
  const void* in = nullptr;
  void* out = nullptr;
};

inline constexpr int kLanes = 32;
void Execute(Collective collective, const Operands (&lanes)[kLanes]);

}  // namespace anyorder::kernels::cuda::emulation
