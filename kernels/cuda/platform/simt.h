// One source for two machines: the names that kernels use for threads, barriers and tensor-core
// instructions.
//
// device/simt_machine.h makes them the hardware's. That of the tests' emulation runs the very same
// kernel text on the CPU, every thread a fiber. A kernel is a function of one parameter struct,
// `ANYORDER_KERNEL void Name(Params)`; its only shared memory is SharedMemory(). What is not here a
// kernel does not use.

#pragma once

#include <cstdint>

namespace anyorder::kernels::cuda {

// 16 bytes at once, 16-byte aligned.
struct alignas(16) Words4 {
  uint32_t word[4];
};
// 8 bytes, 8-byte aligned.
struct alignas(8) Words2 {
  uint32_t word[2];
};

}  // namespace anyorder::kernels::cuda

// The machine: the GPU's is in device/. Tests put theirs before it on the include path.
#include "simt_machine.h"

namespace anyorder::kernels::cuda {

inline constexpr int kWarp = 32;

// a b + c, rounded once, on every machine. Device code is compiled without contraction: `a * b + c`
// is rounded twice everywhere, where each chip and each instantiation would else choose for itself.
// For long fp32 sums of products, which this makes one instruction a term.
ANYORDER_HOST_DEVICE float MultiplyAdd(float a, float b, float c) { return fmaf(a, b, c); }

// A thread's index as (row, place in the row).
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

// Joins a value of each of kLanes neighbours in a warp for all of them, in the same order on every
// machine: a butterfly of distances kLanes / 2, ..., 2, 1.
template <int kLanes = kWarp, typename T, typename Join>
ANYORDER_DEVICE T Butterfly(T value, Join&& join) {
  ANYORDER_UNROLL
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    value = join(value, ShuffleXor(value, distance));
  return value;
}
template <typename T>
ANYORDER_DEVICE T WarpSum(T value) {
  return Butterfly(value, [](T a, T b) { return a + b; });
}
// The least of the warp's integers.
template <typename T>
ANYORDER_DEVICE T WarpMin(T value) {
  return Butterfly(value, [](T a, T b) { return b < a ? b : a; });
}
template <typename T>
ANYORDER_DEVICE T WarpMax(T value) {
  return Butterfly(value, [](T a, T b) { return b > a ? b : a; });
}

}  // namespace anyorder::kernels::cuda
