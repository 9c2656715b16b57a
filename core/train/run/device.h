// Which device a run computes on, and that all its ranks mean the same.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/dtype.h"
#include "core/train/run/run_config.h"
#include "dist/communicator.h"
#include "kernels/backend.h"
#include "kernels/backends/make_backend.h"

namespace anyorder {

// How many of the ranks below `rank` are on its machine; `hosts` are those of all ranks.
int LocalRank(const std::vector<std::string>& hosts, int rank);

// What this rank asks its backend for. Collective: ranks of one machine share its cores and take
// its GPUs in turn.
kernels::BackendOptions RankBackendOptions(const RunConfig& config, const std::string& run_dir,
                                           dist::Communicator& communicator);

// "cpu", or a GPU's name and chip: runs on equal ones have equal bits.
inline std::string DeviceName(const kernels::Backend& backend) {
  return backend.is_host_memory() ? "cpu" : backend.name();
}

// What a device does at most, in FLOP/s of dense matrix products of `dtype`, by the name that
// DeviceName has for it; 0 if this program does not know it, as for every CPU.
double DevicePeakFlops(absl::string_view device, DType dtype);

// Collective. FailedPrecondition, on all ranks, naming the first rank whose device is another than
// rank 0's: the ranks would wait for the slowest, and their copies of the weights could drift
// apart.
absl::Status CheckSameDevices(const kernels::Backend& backend, dist::Communicator& communicator);

// Adds to ResourceExhausted of a device which train.recompute would fit, and which
// train.micro_batch_size without: the largest that `fits` says yes to.
absl::Status WithWhatFits(const absl::Status& status, const RunConfig& config,
                          const std::function<bool(const RunConfig& candidate)>& fits);

// One line for the log if a checkpoint was made on another device, else "". `saved` is "" in
// checkpoints of earlier versions, which knew the CPU only.
std::string DeviceChange(const std::string& saved, const std::string& now);

}  // namespace anyorder
