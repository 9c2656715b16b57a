// A runtime without a GPU, for tests: everything of a stream runs when somebody waits for it and
// not before, device memory cannot be touched by host code, there is as little of it as a test
// wants, and a kernel fails where a test wants it to.
//
// While a thread captures a graph it may only ask for work and events of other streams: what CUDA
// refuses or does not promise then (cudaStreamCaptureModeThreadLocal) ends the program, and so do
// events of the captured stream, which CUDA would take as forks and joins and the product has no
// use for.

#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/platform/runtime.h"
#include "tests/emulated_gpu/block.h"

namespace anyorder::kernels::cuda::emulation {

// How one kernel of a runtime fails. Then no work runs any more, and every later call fails as this
// one did.
struct KernelFault {
  enum class Kind {
    kNone,
    kRefused,         // at its launch: cudaErrorInvalidConfiguration
    kIllegalAddress,  // when it runs: cudaErrorIllegalAddress
    kHardware         // when it runs: cudaErrorECCUncorrectable
  };
  Kind kind = Kind::kNone;
  int64_t kernel = 0;  // which of those that were launched, also by graphs, from 0
  // A kernel that runs shows its fault at a wait for it, or at this call of the runtime after the
  // launch, of whatever kind.
  int64_t calls_later = 1 << 30;
};

struct EmulatedDevice {
  // Of blocks, warps, lanes and streams. With a seed other streams, too, run while one is waited
  // for, and some blocks of device memory end exactly at a page that cannot be touched, where the
  // others begin at one; without, all end there.
  Schedule schedule;
  int64_t memory_bytes = int64_t{16} << 30;
  // Whether its library of matrix products makes sums of operands along with them, or refuses to.
  bool fuses_sums = true;
  // What timed events read in place of the host's clock, where a test must not depend on how busy
  // the machine is.
  const double* milliseconds = nullptr;
  KernelFault fault = {};
};
std::unique_ptr<Runtime> MakeEmulatedRuntime(const EmulatedDevice& device);
// What that runtime's device was made with.
bool FusesSums(const Runtime& runtime);

}  // namespace anyorder::kernels::cuda::emulation
