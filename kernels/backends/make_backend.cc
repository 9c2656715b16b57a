#include "kernels/backends/make_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "kernels/cuda/cuda_backend.h"

namespace anyorder::kernels {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(const BackendOptions& options, int count) {
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Runtime> runtime,
                            cuda::OpenDevice(options.local_rank % count));
  return cuda::MakeCudaBackend(std::move(runtime), {options.gemm_table, options.writes_gemm_table});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.device == DeviceChoice::kCpu) return MakeCpuBackend(options);
  const bool is_auto = options.device == DeviceChoice::kAuto;
  const absl::StatusOr<int> count = cuda::CountDevices();
  if (!count.ok()) {
    if (!is_auto) return count.status();
    // A machine that never had a GPU is no news.
    if (cuda::HasDriver() && options.local_rank == 0)
      Log(absl::StrCat("computing on the CPU: ", count.status().message()));
    return MakeCpuBackend(options);
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeGpuBackend(options, *count);
  if (!is_auto || !IsWithoutUsableGpu(backend.status())) return backend;
  // Every rank says so: where only some have a GPU that will do, the job ends, and their lines tell
  // why.
  LogWarning(
      absl::StrCat("computing on the CPU although there is a GPU: ", backend.status().message()));
  return MakeCpuBackend(options);
}

bool IsWithoutUsableGpu(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnavailable(status) || absl::IsNotFound(status);
}

absl::Status CheckDevice(DeviceChoice device) {
  return device == DeviceChoice::kCuda ? cuda::CheckFirstDevice() : absl::OkStatus();
}

}  // namespace anyorder::kernels
