#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/platform/runtime.h"
#include "tests/gpu/device.h"

namespace anyorder::testing {
namespace {

absl::StatusOr<std::unique_ptr<kernels::Backend>> Open() {
  RETURN_IF_ERROR(kernels::cuda::CountDevices().status());
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::cuda::Runtime> runtime, kernels::cuda::OpenDevice(0));
  return kernels::cuda::MakeCudaBackend(std::move(runtime), {});
}

}  // namespace

absl::Status CheckDevice() { return Open().status(); }

std::unique_ptr<kernels::Backend> OpenDevice() {
  absl::StatusOr<std::unique_ptr<kernels::Backend>> backend = Open();
  ANYORDER_CHECK_OK(backend.status());
  return *std::move(backend);
}

}  // namespace anyorder::testing
