// Which transport a job gets.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "dist/device_transport.h"
#include "dist/nccl_transport.h"

namespace anyorder::dist {

enum class TransportKind {
  kAuto,  // NCCL where each rank has a device of its own and the library is there, else MPI
  kMpi,   // directly, or through host memory
  kNccl,  // or an error
};

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
