// How gradients and weights move between ranks. They lie in device memory; what the ranks say to
// each other besides (start-up, scalars, agreement) goes through a Communicator and the host.
//
// Three implementations: over the communicator where device memory is the host's (nothing is
// copied), over the communicator through staging memory on the host, and NCCL (nccl_transport.h).
//
// Every member is collective, as in communicator.h, and in the order of `stream`, like an operation
// of the backend: what was asked of the stream before is in the data that go out, and what is asked
// of it later sees the data that came in. One stream at a time.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "core/base/stream.h"
#include "dist/communicator.h"
#include "kernels/backend.h"

namespace anyorder::dist {

class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;
  DeviceTransport(const DeviceTransport&) = delete;
  DeviceTransport& operator=(const DeviceTransport&) = delete;

  // "MPI", "MPI through host memory", "NCCL 2.28.9"
  virtual std::string name() const = 0;
  // The stream for exchanges that should overlap with the main stream. All users share it, and
  // their calls run in the order in which they are made. The main stream if calls wait for their
  // peers.
  virtual StreamView messages() const { return {}; }
  // Work that is queued on messages() from now on waits for what the main stream has queued so far.
  virtual void FollowMain() {}
  bool is_asynchronous() const { return messages().handle != nullptr; }

  // As the members of Communicator with the same names; all bytes are device memory. No blocks to
  // or from oneself.
  virtual void Exchange(absl::Span<const SendBlock> send, absl::Span<const ReceiveBlock> receive,
                        StreamView stream) = 0;
  // What lies in `all` behind the last block is room that a library may use; equally much on all
  // ranks.
  virtual void AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets,
                                StreamView stream) = 0;

 protected:
  DeviceTransport() = default;
};

// Over `communicator`: directly where the backend's memory is the host's, else through staging
// memory. Several ranks may share one device. Both are borrowed. ResourceExhausted from the
// allocator.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeCommunicatorTransport(
    Communicator& communicator, kernels::Backend& backend);

// Device memory over a Communicator that can only read the host's: through staging memory, in
// pieces, so that staging is bounded and one piece is copied while another is on its way. It does
// not overlap with computation: a call waits for its peers. `staging_bytes` is the host memory of
// all pieces together: two rounds, each with what goes out and what comes in; equal on all ranks.
// The others are borrowed. ResourceExhausted from the allocator.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeStagedTransport(Communicator& communicator,
                                                                     kernels::Backend& backend,
                                                                     int64_t staging_bytes);

}  // namespace anyorder::dist
