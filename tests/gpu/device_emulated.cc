#include "kernels/cuda/cuda_backend.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/gpu/device.h"

namespace anyorder::testing {

absl::Status CheckDevice() { return absl::OkStatus(); }

std::unique_ptr<kernels::Backend> OpenDevice() {
  return kernels::cuda::MakeCudaBackend(kernels::cuda::emulation::MakeEmulatedRuntime({}), {})
      .value();
}

}  // namespace anyorder::testing
