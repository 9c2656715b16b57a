// Which device a run computes on, and that all its ranks mean the same.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

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

// A GPU by its data sheet.
struct KnownDevice {
  const char* words;     // of the name; of several that fit the first counts
  double bf16;           // TFLOP/s of tensor cores, without sparsity
  double fp32;           // of the other cores: products of fp32 use no TF32
  double memory_gib;     // that CUDA gives a program
  double memory_rate;    // TB/s
  double neighbor_rate;  // GB/s to GPUs of its node, in one direction: NVLink or PCIe
};
absl::Span<const KnownDevice> KnownDevices();
// By the name that DeviceName has for it, or a part of it, in letters of any case; null if this
// program does not know it, as for every CPU.
const KnownDevice* FindKnownDevice(absl::string_view device);
// What a device does at most, in FLOP/s of dense matrix products of `dtype`; 0 if not known.
double DevicePeakFlops(absl::string_view device, DType dtype);

// Collective. FailedPrecondition, on all ranks, naming the first rank whose device is another than
// rank 0's: the ranks would wait for the slowest, and their copies of the weights could drift
// apart.
absl::Status CheckSameDevices(const kernels::Backend& backend, dist::Communicator& communicator);

// One line for the log if a checkpoint was made on another device, else "". `saved` is "" in
// checkpoints of earlier versions, which knew the CPU only.
std::string DeviceChange(const std::string& saved, const std::string& now);

}  // namespace anyorder
