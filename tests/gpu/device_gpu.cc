#include <utility>

#include "core/base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/platform/runtime.h"
#include "tests/gpu/device.h"

namespace anyorder::testing {
namespace {

absl::StatusOr<std::unique_ptr<kernels::Backend>> Open() {
  absl::StatusOr<int> count = kernels::cuda::CountDevices();
  if (!count.ok()) return count.status();
  absl::StatusOr<std::unique_ptr<kernels::cuda::Runtime>> runtime = kernels::cuda::OpenDevice(0);
  if (!runtime.ok()) return runtime.status();
  return kernels::cuda::MakeCudaBackend(*std::move(runtime), {});
}

}  // namespace

absl::Status CheckDevice() { return Open().status(); }

std::unique_ptr<kernels::Backend> OpenDevice() {
  absl::StatusOr<std::unique_ptr<kernels::Backend>> backend = Open();
  ANYORDER_CHECK_OK(backend.status());
  return *std::move(backend);
}

}  // namespace anyorder::testing
