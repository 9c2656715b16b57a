// Device memory of the emulation: pages that nobody can touch but while an Access lives, with pages beside each block that nobody ever can.

#pragma once

#include <cstdint>

namespace anyorder::kernels::cuda::emulation {

// 256-byte aligned, ends at an untouchable page (up to that alignment), filled with NaN. Null if the system has none.
void* AllocateFenced(int64_t bytes);
void FreeFenced(void* data);

// Opens all device memory of the process to all its threads: work of a stream has one while it runs. They nest.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace anyorder::kernels::cuda::emulation
