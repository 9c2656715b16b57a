// Host memory for the backends that run on the CPU.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "kernels/backend.h"

namespace anyorder::kernels {

// Zeroed and touched. Blocks of 4 MiB and more are aligned to 2 MiB and advised to use huge pages, because a
// first touch of 4 KiB pages runs at about 1 GB/s and streaming from them is a quarter slower.
// ResourceExhausted if the system has no such block.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateHostBuffer(int64_t bytes);

}  // namespace anyorder::kernels
