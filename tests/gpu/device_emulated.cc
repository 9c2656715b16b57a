#include <utility>

#include "core/base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/platform/runtime_emulated.h"
#include "tests/gpu/device.h"

namespace anyorder::testing {

absl::Status CheckDevice() { return absl::OkStatus(); }

std::unique_ptr<kernels::Backend> OpenDevice() {
  absl::StatusOr<std::unique_ptr<kernels::Backend>> backend =
      kernels::cuda::MakeCudaBackend(kernels::cuda::emulation::MakeEmulatedRuntime({}), {});
  ANYORDER_CHECK_OK(backend.status());
  return *std::move(backend);
}

}  // namespace anyorder::testing
