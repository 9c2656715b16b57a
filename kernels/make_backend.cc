#include "kernels/make_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "kernels/cuda/cuda_backend.h"

namespace anyorder::kernels {
namespace {

absl::StatusOr<std::unique_ptr<cuda::Runtime>> OpenOwnDevice(int local_rank) {
  ANYORDER_ASSIGN_OR_RETURN(const int count, cuda::CountDevices());
  return cuda::OpenDevice(local_rank % count);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.device == DeviceChoice::kCpu) return MakeCpuBackend(options);
  absl::StatusOr<std::unique_ptr<cuda::Runtime>> runtime = OpenOwnDevice(options.local_rank);
  if (!runtime.ok()) {
    if (options.device == DeviceChoice::kCuda) return runtime.status();
    if (cuda::IsBuiltWithCuda() && options.local_rank == 0)
      Log(absl::StrCat("computing on the CPU: ", runtime.status().message()));
    return MakeCpuBackend(options);
  }
  return cuda::MakeCudaBackend(*std::move(runtime),
                               {options.gemm_table, options.writes_gemm_table});
}

}  // namespace anyorder::kernels
