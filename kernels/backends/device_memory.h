// How much memory the GPUs of this machine have, for what is decided before one is opened.

#pragma once

#include <cstdint>

#include "kernels/backends/make_backend.h"

namespace anyorder::kernels {

struct DeviceMemory {
  int64_t devices = 0;  // that ranks would compute on; 0: they compute in the host's memory
  int64_t bytes = 0;    // total memory of the smallest, used or free
};

// Opens none.
DeviceMemory MemoryOfDevices(DeviceChoice device);

}  // namespace anyorder::kernels
