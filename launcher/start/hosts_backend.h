// Service and ranks on machines that a shell command reaches, ssh as a rule: clusters without
// Slurm.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "launcher/process/host_names.h"
#include "launcher/start/launch_backend.h"

namespace anyorder::launcher {

struct HostsOptions {
  std::string run_dir;  // absolute
  std::vector<HostSlots> hosts;
  int64_t ranks = 1;  // at most as many as all hosts have slots
  // Words that are followed by a host and a command; "": see RemoteShell (open_mpi.h).
  std::string rsh;
};

// InvalidArgument without mpirun or, for other machines, without `rsh`. Writes nothing.
absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeHostsBackend(const HostsOptions& options);

// The first `ranks` slots of `hosts`, in their order; hosts without one are left out.
std::vector<HostSlots> FillSlots(const std::vector<HostSlots>& hosts, int64_t ranks);

}  // namespace anyorder::launcher
