// Chooses a form of a kernel and starts it: on the GPU as one launch on `stream`, on the machine of
// tests as they say (simt.h).

#pragma once

#include <cstdint>

#include "core/base/check.h"
#include "core/base/stream.h"
#include "core/base/tensor.h"
#include "kernels/cuda/platform/launch_error.h"
#include "kernels/cuda/platform/launch_shape.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

// A launch that no GPU would take is our own mistake, which tests need not forgive.
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
  StartKernel(kernel, shape, params, stream);
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
