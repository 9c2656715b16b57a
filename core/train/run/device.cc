#include "core/train/run/device.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/machine_memory.h"

namespace anyorder {

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

absl::Span<const KnownDevice> KnownDevices() {
  static constexpr KnownDevice kDevices[] = {
      {"B200", 2250, 75, 178.3, 8.0, 900},     {"H200 NVL", 835, 60, 139.8, 4.8, 450},
      {"H200", 989, 67, 139.8, 4.8, 450},      {"GH200", 989, 67, 94.5, 4.0, 450},
      {"H100 NVL", 835, 60, 93.1, 3.9, 300},   {"H100 PCIe", 756, 51, 79.1, 2.0, 64},
      {"H100", 989, 67, 79.1, 3.35, 450},      {"A100 40GB", 312, 19.5, 39.4, 1.55, 300},
      {"A100", 312, 19.5, 79.1, 2.0, 300},     {"L40S", 362, 91.6, 44.4, 0.86, 32},
      {"L40", 181, 90.5, 44.4, 0.86, 32},      {"L4", 121, 30.3, 22.0, 0.3, 32},
      {"A40", 150, 37.4, 44.4, 0.7, 32},       {"A10", 125, 31.2, 22.0, 0.6, 32},
      {"RTX 4090", 165, 82.6, 23.5, 1.01, 32}, {"RTX 3090", 71, 35.6, 23.6, 0.94, 32}};
  return kDevices;
}

const KnownDevice* FindKnownDevice(absl::string_view device) {
  const auto words_of = [](absl::string_view name) {
    return std::vector<std::string>(
        absl::StrSplit(absl::AsciiStrToLower(name), absl::ByAnyChar(" -(,")));
  };
  const std::vector<std::string> name = words_of(device);
  for (const KnownDevice& known : KnownDevices()) {
    const std::vector<std::string> words = words_of(known.words);
    if (std::all_of(words.begin(), words.end(), [&](const std::string& word) {
          return std::find(name.begin(), name.end(), word) != name.end();
        }))
      return &known;
  }
  return nullptr;
}

double DevicePeakFlops(absl::string_view device, DType dtype) {
  const KnownDevice* const known = FindKnownDevice(device);
  if (known == nullptr) return 0;
  return 1e12 * (dtype == DType::kBFloat16 ? known->bf16 : known->fp32);
}

absl::Status CheckSameDevices(const kernels::Backend& backend, dist::Communicator& communicator) {
  return communicator.AllSame(DeviceName(backend), "computes on another device",
                              "one job needs one kind of device; choose nodes of one kind, or set "
                              "train.device = \"cpu\"");
}

std::string DeviceChange(const std::string& saved, const std::string& now) {
  const std::string before = saved.empty() ? "cpu" : saved;
  if (before == now) return "";
  return absl::StrCat(
      "the checkpoint was made on ", before, ", this attempt computes on ", now,
      ": from here on the run is not bitwise identical to one that stayed on that device");
}

}  // namespace anyorder
