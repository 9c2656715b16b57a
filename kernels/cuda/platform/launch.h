// Chooses a form of a kernel and starts it. Under nvcc: on the GPU, as one launch on `stream`. In
// the emulation: `stream` gets the run of the whole grid as one piece of work (runtime_emulated.h),
// or it runs at once if the stream is null. This header and simt.h choose between the two; nothing
// else does.

#pragma once

#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/stream.h"
#include "core/base/tensor.h"
#include "kernels/cuda/platform/launch_error.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

struct LaunchShape {
  int64_t blocks_x = 1;
  int blocks_y = 1;
  int blocks_z = 1;
  int threads = 128;         // a block; a multiple of 32
  int64_t shared_bytes = 0;  // above 48 KiB: the kernel's limit is raised first
};

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// So many threads at least, in blocks of `block`.
constexpr LaunchShape ShapeOfThreads(int64_t threads, int block) {
  return {.blocks_x = CeilDivide(threads, block), .threads = block};
}

// What each of our chips takes; sm_80 has the least shared memory of them.
inline constexpr int64_t kMostBlocksX = std::numeric_limits<int32_t>::max();
inline constexpr int kMostBlocksYZ = 65535;
inline constexpr int kMostThreads = 1024;
inline constexpr int64_t kMostSharedBytes = 163 * 1024;

// A launch that no GPU would take is our own mistake, which the emulation need not forgive.
inline void CheckLaunch(const void* kernel, const LaunchShape& shape) {
  ANYORDER_CHECK(shape.blocks_x > 0 && shape.blocks_x <= kMostBlocksX && shape.blocks_y > 0 &&
                 shape.blocks_y <= kMostBlocksYZ && shape.blocks_z > 0 &&
                 shape.blocks_z <= kMostBlocksYZ)
      << KernelName(kernel) << ": a grid of " << shape.blocks_x << " x " << shape.blocks_y << " x "
      << shape.blocks_z << " blocks, at most " << kMostBlocksX << " x " << kMostBlocksYZ << " x "
      << kMostBlocksYZ;
  ANYORDER_CHECK(shape.threads > 0 && shape.threads % kWarp == 0 && shape.threads <= kMostThreads)
      << KernelName(kernel) << ": " << shape.threads << " threads a block, must be whole warps of "
      << kWarp << ", at most " << kMostThreads;
  ANYORDER_CHECK(shape.shared_bytes >= 0 && shape.shared_bytes <= kMostSharedBytes)
      << KernelName(kernel) << ": " << shape.shared_bytes
      << " bytes of shared memory a block, at most " << kMostSharedBytes;
}

// Starts `kernel` with `params`, or nothing for a grid without blocks. What goes wrong ends the
// program and names the kernel.
template <typename Params>
void Launch(void (*kernel)(Params), const LaunchShape& shape, const Params& params,
            StreamView stream) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0 || shape.blocks_z == 0) return;
  const void* const function = reinterpret_cast<const void*>(kernel);
  CheckLaunch(function, shape);
  NoteLaunch(function);
#ifdef __CUDACC__
  // The runtime's own null stream would wait for all others.
  ANYORDER_CHECK(stream.handle != nullptr) << KernelName(function) << ": a kernel without a stream";
  if (shape.shared_bytes > 48 * 1024) {
    CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes)),
              "shared memory of a kernel");
  }
  const dim3 grid(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
                  static_cast<unsigned>(shape.blocks_z));
  kernel<<<grid, static_cast<unsigned>(shape.threads), static_cast<size_t>(shape.shared_bytes),
           static_cast<cudaStream_t>(stream.handle)>>>(params);
  CheckCuda(cudaGetLastError(), kLaunchOfAKernel);
#else
  const emulation::Grid grid{static_cast<int>(shape.blocks_x), shape.blocks_y, shape.blocks_z,
                             shape.threads, shape.shared_bytes};
  emulation::EnqueueKernel(stream, function,
                           [=] { emulation::Run(function, grid, [&] { kernel(params); }); });
#endif
}

// Calls function.template operator()<T>() with the storage type of `dtype`.
template <typename Function>
void WithStorage(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kFloat32: return function.template operator()<float>();
    case DType::kBFloat16: return function.template operator()<BFloat16>();
    default: ANYORDER_CHECK(false) << "the CUDA backend has no " << std::string(Name(dtype));
  }
}

// Calls function.template operator()<value>().
template <typename Function>
void WithBool(bool value, Function&& function) {
  value ? function.template operator()<true>() : function.template operator()<false>();
}

// Both, for kernels with a form for aligned rows: function.template operator()<T, kAligned>().
template <typename Function>
void WithForm(DType dtype, bool is_aligned, Function&& function) {
  WithStorage(dtype, [&]<typename T>() {
    WithBool(is_aligned, [&]<bool kAligned>() { function.template operator()<T, kAligned>(); });
  });
}

// Whether rows of `columns` elements in these tensors begin at 16-byte addresses and have whole
// groups; null tensors do.
template <typename... Views>
bool AreAligned(int64_t columns, const Views&... views) {
  return columns % kGroup == 0 && ((reinterpret_cast<uintptr_t>(views.raw()) % 16 == 0) && ...);
}

}  // namespace anyorder::kernels::cuda
