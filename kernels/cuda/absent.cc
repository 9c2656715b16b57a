// What a program that was built without CUDA has in place of the backend.

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemm/gemm_table.h"

namespace anyorder::kernels::cuda {
namespace {

absl::Status BuiltWithoutCuda() {
  return absl::InvalidArgumentError(
      "this program was built without CUDA; use train.device = \"cpu\", or build it where nvcc is "
      "(ANYORDER_CUDA=ON)");
}

}  // namespace

bool HasDriver() { return false; }
absl::StatusOr<int> CountDevices() { return BuiltWithoutCuda(); }
absl::Status CheckFirstDevice() { return BuiltWithoutCuda(); }
absl::StatusOr<DeviceProperties> DescribeDevice(int) { return BuiltWithoutCuda(); }
absl::StatusOr<std::unique_ptr<Runtime>> OpenDevice(int) { return BuiltWithoutCuda(); }
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime>,
                                                         const GemmOptions&) {
  return BuiltWithoutCuda();
}
absl::Status TuneGemms(const std::string&, const std::function<void()>&,
                       const std::function<void(const TunedGemm&)>&) {
  return BuiltWithoutCuda();
}

}  // namespace anyorder::kernels::cuda
