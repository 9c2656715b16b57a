#include "kernels/backends/device_memory.h"

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"

namespace anyorder::kernels {

DeviceMemory MemoryOfDevices(DeviceChoice device) {
  DeviceMemory memory;
  if (device == DeviceChoice::kCpu || !cuda::CheckFirstDevice().ok()) return memory;
  const int count = cuda::CountDevices().value_or(0);
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<cuda::DeviceProperties> gpu = cuda::DescribeDevice(i);
    if (!gpu.ok()) return {};
    memory.bytes = i == 0 ? gpu->total_bytes : std::min(memory.bytes, gpu->total_bytes);
  }
  memory.devices = count;
  return memory;
}

}  // namespace anyorder::kernels
