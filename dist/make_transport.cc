#include "dist/make_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::dist {
namespace {

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNccl(Communicator& communicator,
                                                          kernels::Backend& backend,
                                                          const TransportOptions& options) {
  RETURN_IF_ERROR(CheckOneDeviceEach(communicator, backend.device_id()));
  ASSIGN_OR_RETURN(std::unique_ptr<NcclLibrary> library,
                   communicator.AllAgree(options.load_nccl()));
  return MakeNcclTransport(std::move(library), communicator, backend, options.nccl);
}

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeMpi(Communicator& communicator,
                                                         kernels::Backend& backend) {
  return communicator.AllAgree(MakeCommunicatorTransport(communicator, backend));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeTransport(Communicator& communicator,
                                                               kernels::Backend& backend,
                                                               const TransportOptions& options) {
  if (options.kind == TransportKind::kNccl && backend.is_host_memory()) {
    return InvalidArgument("dist.transport = \"nccl\" is for GPUs, and this run computes on ",
                           backend.name(), "; set \"auto\" or \"mpi\"");
  }
  if (options.kind == TransportKind::kNccl) return MakeNccl(communicator, backend, options);
  if (options.kind == TransportKind::kMpi || backend.is_host_memory() ||
      communicator.world_size() == 1)
    return MakeMpi(communicator, backend);
  if (!CheckOneDeviceEach(communicator, backend.device_id()).ok())
    return MakeMpi(communicator, backend);  // what several ranks on a device are for: tests
  absl::StatusOr<std::unique_ptr<DeviceTransport>> nccl = MakeNccl(communicator, backend, options);
  if (nccl.ok()) return nccl;
  if (communicator.rank() == 0) {
    LogWarning(
        absl::StrCat("gradients go through host memory, which is slow: ", nccl.status().message()));
  }
  return MakeMpi(communicator, backend);
}

}  // namespace anyorder::dist
