#include "core/train/run/device.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

int LocalRank(const std::vector<std::string>& hosts, int rank) {
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, hosts[rank]));
}

kernels::BackendOptions RankBackendOptions(const RunConfig& config, const std::string& run_dir,
                                           dist::Communicator& communicator) {
  const std::vector<std::string> hosts = communicator.AllGatherStrings(communicator.host());
  const auto here = static_cast<int>(std::count(hosts.begin(), hosts.end(), communicator.host()));
  kernels::BackendOptions options;
  options.num_threads = config.cpu.threads > 0 ? static_cast<int>(config.cpu.threads)
                                               : std::max(1, UsableCores() / here);
  options.device = config.train.device;
  options.local_rank = LocalRank(hosts, communicator.rank());
  options.gemm_table = config.kernels.gemm_algorithm_cache.empty()
                           ? absl::StrCat(run_dir, "/gemm_algorithm_cache.txt")
                           : config.kernels.gemm_algorithm_cache;
  options.writes_gemm_table = communicator.rank() == 0;
  return options;
}

std::string DeviceName(const kernels::Backend& backend) {
  return backend.is_host_memory() ? "cpu" : backend.name();
}

absl::Status CheckSameDevices(const kernels::Backend& backend, dist::Communicator& communicator) {
  return communicator.AllSame(DeviceName(backend), "computes on another device",
                              "one job needs one kind of device; choose nodes of one kind, or set "
                              "train.device = \"cpu\"");
}

absl::Status WithWhatFits(const absl::Status& status, const TrainConfig& train,
                          const std::function<bool(int64_t lanes)>& fits) {
  if (!absl::IsResourceExhausted(status)) return status;
  // Halves, so that the number of microbatches stays a power of two.
  int64_t lanes = train.micro_batch_size;
  while (lanes % 2 == 0) {
    lanes /= 2;
    if (!fits(lanes)) continue;
    return ResourceExhausted(status.message(), "; train.micro_batch_size = ", lanes,
                             " fits, it is ", train.micro_batch_size);
  }
  return ResourceExhausted(status.message(), "; not even train.micro_batch_size = ", lanes,
                           " fits: the model is too large for this device");
}

std::string DeviceChange(const std::string& saved, const std::string& now) {
  const std::string before = saved.empty() ? "cpu" : saved;
  if (before == now) return "";
  return absl::StrCat(
      "the checkpoint was made on ", before, ", this attempt computes on ", now,
      ": from here on the run is not bitwise identical to one that stayed on that device");
}

}  // namespace anyorder
