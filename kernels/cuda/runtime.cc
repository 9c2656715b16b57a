#include "kernels/cuda/runtime.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::kernels::cuda {

absl::Status OutOfDeviceMemory(int64_t bytes,
                               const DeviceMemoryInfo& memory,
                               const DeviceProperties& device) {
  return absl::ResourceExhaustedError(
      absl::StrCat("allocate ",
                   bytes,
                   " bytes on ",
                   device.name,
                   ": ",
                   memory.free_bytes,
                   " of its ",
                   memory.total_bytes,
                   " are free; use a smaller train.microbatch_lanes "
                   "or model, or fewer ranks on a GPU"));
}

absl::Status CheckChip(const DeviceProperties& device) {
  if (device.chip >= kOldestChip) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(device.name,
                                             " is sm_",
                                             device.chip,
                                             ", too old: sm_",
                                             kOldestChip,
                                             " (A100) or newer is needed; choose another GPU, or "
                                             "train.device = \"cpu\""));
}

void* AllocateOrEnd(Runtime& runtime, int64_t bytes) {
  const absl::StatusOr<void*> data = runtime.AllocateDevice(bytes);
  if (data.ok()) return *data;
  LogWarning(data.status().message());
  // At once: destructors would wait for work that cannot be started. The launcher ends the other ranks.
  ::_exit(kExitIo);
}

}  // namespace anyorder::kernels::cuda
