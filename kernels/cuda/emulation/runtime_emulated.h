// A runtime without a GPU, for tests: everything of a stream runs when somebody waits for it and not before, device memory cannot be
// touched by host code, and there is as little of it as a test wants.

#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/emulation/block.h"
#include "kernels/cuda/runtime.h"

namespace anyorder::kernels::cuda::emulation {

struct EmulatedDevice {
  // Of blocks, warps and streams. With a seed other streams, too, run while one is waited for.
  Schedule schedule;
  int64_t memory_bytes = int64_t{16} << 30;
  // Whether its library of matrix products makes sums of operands along with them, or refuses to.
  bool fuses_sums = true;
  // What timed events read in place of the host's clock, where a test must not depend on how busy the machine is.
  const double* milliseconds = nullptr;
};
std::unique_ptr<Runtime> MakeEmulatedRuntime(const EmulatedDevice& device);
// What that runtime's device was made with.
bool FusesSums(const Runtime& runtime);

}  // namespace anyorder::kernels::cuda::emulation
