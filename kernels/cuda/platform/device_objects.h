// What the CUDA backend gives away: memory, streams and events that free themselves. They keep the
// runtime alive, so that they may outlive the backend.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "kernels/backend.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels::cuda {

// Zeroed, for all streams. InvalidArgument for a negative size; ResourceExhausted.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateDeviceBuffer(std::shared_ptr<Runtime> runtime,
                                                             int64_t bytes);
absl::StatusOr<std::unique_ptr<Buffer>> AllocatePinnedBuffer(std::shared_ptr<Runtime> runtime,
                                                             int64_t bytes);
absl::StatusOr<std::unique_ptr<HostRegistration>> RegisterHostMemory(
    std::shared_ptr<Runtime> runtime, void* data, int64_t bytes);
std::unique_ptr<Stream> MakeDeviceStream(std::shared_ptr<Runtime> runtime, StreamPurpose purpose);
std::unique_ptr<Event> MakeDeviceEvent(std::shared_ptr<Runtime> runtime);

}  // namespace anyorder::kernels::cuda
