// Starts a kernel, on the GPU or emulated.

#pragma once

#include <cstdint>

#include "core/base/stream.h"
#include "kernels/cuda/simt.h"
#ifdef __CUDACC__
#include "kernels/cuda/launch_status.h"
#else
#include "kernels/cuda/emulation/stream.h"
#endif

namespace anyorder::kernels::cuda {

struct LaunchShape {
  int64_t blocks_x = 1;
  int blocks_y = 1;
  int blocks_z = 1;
  int threads = 128;         // a block; a multiple of 32
  int64_t shared_bytes = 0;  // above 48 KiB: the kernel's limit is raised first
};

constexpr int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

#ifdef __CUDACC__

template <typename Params>
void Launch(void (*kernel)(Params),
            const LaunchShape& shape,
            const Params& params,
            StreamView stream) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0 || shape.blocks_z == 0) return;
  if (shape.shared_bytes > 48 * 1024) {
    CheckCuda(cudaFuncSetAttribute(kernel,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes)),
              "shared memory of a kernel");
  }
  const dim3 grid(static_cast<unsigned>(shape.blocks_x),
                  static_cast<unsigned>(shape.blocks_y),
                  static_cast<unsigned>(shape.blocks_z));
  kernel<<<grid,
           static_cast<unsigned>(shape.threads),
           static_cast<size_t>(shape.shared_bytes),
           static_cast<cudaStream_t>(stream.handle)>>>(params);
  CheckCuda(cudaGetLastError(), "launch of a kernel");
}

#else

template <typename Params>
void Launch(void (*kernel)(Params),
            const LaunchShape& shape,
            const Params& params,
            StreamView stream) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0 || shape.blocks_z == 0) return;
  const emulation::Grid grid{static_cast<int>(shape.blocks_x),
                             shape.blocks_y,
                             shape.blocks_z,
                             shape.threads,
                             shape.shared_bytes};
  emulation::Enqueue(stream, [=] { emulation::Run(grid, [&] { kernel(params); }); });
}

#endif

}  // namespace anyorder::kernels::cuda
