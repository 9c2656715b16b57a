// Device memory over a Communicator that can only read the host's: through staging memory, in
// pieces, so that staging is bounded and one piece is copied while another is on its way. It does
// not run beside the computation: a call waits for its peers.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "dist/device_transport.h"

namespace anyorder::dist {

struct StagingOptions {
  // Of host memory, for all pieces together: two rounds, each with what goes out and what comes in.
  // Equal on all ranks.
  int64_t bytes = int64_t{64} << 20;
};

// Both are borrowed. ResourceExhausted from the allocator.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeStagedTransport(Communicator& communicator,
                                                                     kernels::Backend& backend,
                                                                     const StagingOptions& options);

}  // namespace anyorder::dist
