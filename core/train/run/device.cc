#include "core/train/run/device.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/machine_memory.h"
#include "core/base/status.h"

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

double DevicePeakFlops(absl::string_view device, DType dtype) {
  struct Peak {
    const char* words;  // of the name; of several that fit the first counts
    double bf16;        // TFLOP/s of tensor cores, without sparsity
    double fp32;        // of the other cores: products of fp32 use no TF32
  };
  static constexpr Peak kPeaks[] = {
      {"B200", 2250, 75},    {"H200 NVL", 835, 60},   {"H200", 989, 67},     {"GH200", 989, 67},
      {"H100 NVL", 835, 60}, {"H100 PCIe", 756, 51},  {"H100", 989, 67},     {"A100", 312, 19.5},
      {"L40S", 362, 91.6},   {"L40", 181, 90.5},      {"L4", 121, 30.3},     {"A40", 150, 37.4},
      {"A10", 125, 31.2},    {"RTX 4090", 165, 82.6}, {"RTX 3090", 71, 35.6}};
  const std::vector<absl::string_view> name = absl::StrSplit(device, absl::ByAnyChar(" -(,"));
  for (const Peak& peak : kPeaks) {
    const std::vector<absl::string_view> words = absl::StrSplit(peak.words, ' ');
    const bool fits = std::all_of(words.begin(), words.end(), [&](absl::string_view word) {
      return std::find(name.begin(), name.end(), word) != name.end();
    });
    if (fits) return 1e12 * (dtype == DType::kBFloat16 ? peak.bf16 : peak.fp32);
  }
  return 0;
}

absl::Status CheckSameDevices(const kernels::Backend& backend, dist::Communicator& communicator) {
  return communicator.AllSame(DeviceName(backend), "computes on another device",
                              "one job needs one kind of device; choose nodes of one kind, or set "
                              "train.device = \"cpu\"");
}

absl::Status WithWhatFits(const absl::Status& status, const RunConfig& config,
                          const std::function<bool(const RunConfig& candidate)>& fits) {
  if (!absl::IsResourceExhausted(status)) return status;
  std::string advice = SettingsThatFit(config, fits);
  if (!advice.empty()) advice = absl::StrCat("; ", advice, ", which fits and changes no bit");
  const std::vector<int64_t> sizes = Halves(config.train.micro_batch_size);
  for (const int64_t lanes : sizes) {
    RunConfig candidate = config;
    candidate.train.micro_batch_size = lanes;
    if (lanes == config.train.micro_batch_size || !fits(candidate)) continue;
    return ResourceExhausted(status.message(), advice, "; train.micro_batch_size = ", lanes,
                             " fits, it is ", config.train.micro_batch_size);
  }
  if (!advice.empty()) return ResourceExhausted(status.message(), advice);
  return ResourceExhausted(status.message(), "; not even train.micro_batch_size = ", sizes.back(),
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
