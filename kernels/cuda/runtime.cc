#include "kernels/cuda/runtime.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "kernels/cuda/launch.h"

namespace anyorder::kernels::cuda {

absl::Status OutOfDeviceMemory(int64_t bytes,
                               const DeviceMemoryInfo& memory,
                               const DeviceProperties& device) {
  return absl::ResourceExhaustedError(absl::StrCat("allocate ",
                                                   bytes,
                                                   " bytes on ",
                                                   device.name,
                                                   ": ",
                                                   memory.free_bytes,
                                                   " of its ",
                                                   memory.total_bytes,
                                                   " are free; ",
                                                   kLessDeviceMemory));
}

absl::Status CheckChip(const DeviceProperties& device) {
  if (device.chip == kOldestChip || device.chip == kNewestChip) return absl::OkStatus();
  // Code of sm_80 runs on all of compute capability 8, where a block may have less memory than the kernels are made for.
  if (device.chip / 10 == kOldestChip / 10 && device.shared_bytes_per_block >= kMostSharedBytes)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(device.name,
                   " (sm_",
                   device.chip,
                   ", ",
                   device.shared_bytes_per_block / 1024,
                   " KiB of shared memory a block) is not supported: this program has code for sm_",
                   kOldestChip,
                   " (A100), sm_",
                   kNewestChip,
                   " (H100, H200) and others of sm_8x with ",
                   kMostSharedBytes / 1024,
                   " KiB; choose another GPU, or train.device = \"cpu\""));
}

void EndWith(const absl::Status& status) {
  LogWarning(status.message());
  // At once: destructors would wait for work that cannot be started. Nothing of the step is saved; the launcher ends the other ranks.
  ::_exit(ExitStatusFor(status));
}

}  // namespace anyorder::kernels::cuda
