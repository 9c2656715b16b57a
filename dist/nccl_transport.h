// Device memory from GPU to GPU by NCCL, on a stream of its own beside the computation; MPI stays
// for start-up and control. And which transport a job gets.
//
// With real NCCL only one rank ran, on one GPU (tests/gpu): tests put a library of their own under
// it (tests/testing/fake_nccl.h).

#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "dist/collective_watch.h"
#include "dist/device_transport.h"
#include "dist/nccl_library.h"

namespace anyorder::dist {

struct NcclOptions {
  // Until all ranks are there, and until they have left.
  absl::Duration connect_limit = absl::Minutes(2);
  // From asking for an operation to its end on the device; the computation before it counts, too.
  // Afterwards the rank ends.
  absl::Duration work_limit = absl::Minutes(15);
  // Calls the watch (below) makes while ranks train; null: nobody looks for errors that come later.
  CollectiveWatch* watch = nullptr;
};

// InvalidArgument, the same on every rank, naming two ranks that share a device and what to do.
// Collective.
absl::Status CheckOneDeviceEach(Communicator& communicator, const std::string& device_id);

// Collective; errors are the same on all ranks: as above, Unavailable if a rank's library is too
// old or another than rank 0's, if NCCL refuses, or if the ranks are not connected within the
// limit. Arguments are borrowed.
//
// An error that NCCL reports later and an operation that does not end take the rank down: one line,
// ncclCommAbort, exit status 74.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(
    std::unique_ptr<NcclLibrary> library, Communicator& communicator, kernels::Backend& backend,
    const NcclOptions& options);

enum class TransportKind {
  kAuto,  // NCCL where each rank has a device of its own and the library is there, else MPI
  kMpi,   // directly, or through host memory
  kNccl,  // or an error
};
constexpr auto SpellingsOf(TransportKind) { return std::array{"auto", "mpi", "nccl"}; }

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;
  NcclOptions nccl;
  std::function<absl::StatusOr<std::unique_ptr<NcclLibrary>>()> load_nccl = LoadNcclLibrary;
};

// Collective; the choice and errors are the same on all ranks. InvalidArgument for NCCL without
// devices or with shared ones, Unavailable without a library; ResourceExhausted. Communicator,
// backend and watch are borrowed. Where kAuto does without NCCL though each rank has a device of
// its own, rank 0 says so.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeTransport(Communicator& communicator,
                                                               kernels::Backend& backend,
                                                               const TransportOptions& options);

}  // namespace anyorder::dist
