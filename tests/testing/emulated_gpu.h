// The CUDA backend on the emulated GPU. Link anyorder::cuda_emulation.

#pragma once

#include <memory>

#include "kernels/cuda/cuda_backend.h"
#include "tests/emulated_gpu/runtime.h"

namespace anyorder::testing {

inline std::unique_ptr<kernels::Backend> MakeEmulatedGpu() {
  return kernels::cuda::MakeCudaBackend(kernels::cuda::emulation::MakeEmulatedRuntime({}), {})
      .value();
}

}  // namespace anyorder::testing
