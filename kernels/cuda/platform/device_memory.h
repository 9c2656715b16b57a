// Device memory of the emulation: pages that nobody can touch but while an Access lives, with pages
// beside each block that nobody ever can.

#pragma once

#include <cstdint>

#include "kernels/cuda/platform/guarded_pages.h"

namespace anyorder::kernels::cuda::emulation {

// 256-byte aligned, filled with NaN. Null if the system has none.
void* AllocateFenced(int64_t bytes, Placement placement);
void FreeFenced(void* data);

// Opens all device memory of the process to all its threads: work of a stream has one while it
// runs. They nest. Each looks at its end for writes outside of the blocks, which end the program.
class DeviceAccess {
 public:
  // `kernel`: the one that runs, or null.
  explicit DeviceAccess(const void* kernel);
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  const void* const kernel_;
};

}  // namespace anyorder::kernels::cuda::emulation
