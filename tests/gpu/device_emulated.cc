#include "tests/gpu/device.h"
#include "tests/testing/emulated_gpu.h"

namespace anyorder::testing {

absl::Status CheckDevice() { return absl::OkStatus(); }

std::unique_ptr<kernels::Backend> OpenDevice() { return MakeEmulatedGpu(); }

}  // namespace anyorder::testing
