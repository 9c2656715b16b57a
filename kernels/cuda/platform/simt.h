// One source for two machines: the names that kernels use for threads, barriers and tensor-core
// instructions.
//
// nvcc compiles them to the hardware's; any other compiler to the emulation (block.h), which runs
// the very same kernel text on the CPU, every thread a fiber. A kernel is a function of one
// parameter struct, `ANYORDER_KERNEL void Name(Params)`; its only shared memory is SharedMemory().
// What is not here a kernel does not use.

#pragma once

#include <cstdint>

#ifdef __CUDACC__
// Static: every source that includes a kernel has its own, used or not.
#define ANYORDER_KERNEL [[maybe_unused]] static __global__
#define ANYORDER_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define ANYORDER_DEVICE __device__ __forceinline__
#define ANYORDER_HOST_DEVICE __host__ __device__ __forceinline__
#define ANYORDER_UNROLL _Pragma("unroll")
#define ANYORDER_ROLLED _Pragma("unroll 1")
#include "kernels/cuda/platform/simt_device.h"
#else
#define ANYORDER_KERNEL inline
#define ANYORDER_LAUNCH_BOUNDS(threads, blocks)
#define ANYORDER_DEVICE inline
#define ANYORDER_HOST_DEVICE inline
#define ANYORDER_UNROLL
#define ANYORDER_ROLLED
#include "kernels/cuda/platform/simt_emulated.h"
#endif

namespace anyorder::kernels::cuda {

inline constexpr int kWarp = 32;

// a b + c, rounded once, on every machine. Device code is compiled without contraction: `a * b + c`
// is rounded twice everywhere, where each chip and each instantiation would else choose for itself.
// For long fp32 sums of products, which this makes one instruction a term.
ANYORDER_HOST_DEVICE float MultiplyAdd(float a, float b, float c) { return fmaf(a, b, c); }

// Of this thread's warp; every lane gets the sum, added in the same order on every machine: a
// butterfly of distances 16, 8, 4, 2, 1.
template <typename T>
ANYORDER_DEVICE T WarpSum(T value) {
  ANYORDER_UNROLL
  for (int distance = kWarp / 2; distance > 0; distance /= 2) value += ShuffleXor(value, distance);
  return value;
}
ANYORDER_DEVICE float WarpMax(float value) {
  ANYORDER_UNROLL
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = fmaxf(value, ShuffleXor(value, distance));
  return value;
}

}  // namespace anyorder::kernels::cuda
