// Streams without a GPU: work waits in its stream's queue until somebody synchronises, so that a
// wait that is missing shows.

#pragma once

#include <functional>

#include "core/base/stream.h"

namespace anyorder::kernels::cuda::emulation {

// A library's call. `work` may touch device memory (device_memory.h) when it runs. A null stream,
// which only tests of single kernels use, runs it now.
void Enqueue(StreamView stream, std::function<void()> work);
// The same for a kernel.
void EnqueueKernel(StreamView stream, const void* kernel, std::function<void()> work);

}  // namespace anyorder::kernels::cuda::emulation
