// The backend that a program computes on, and what there is to compute with.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/backend.h"

namespace anyorder::kernels {

enum class DeviceChoice {
  kAuto,  // a GPU if the program was built for one and it can be used, else the CPU
  kCpu,
  kCuda,
};
constexpr auto SpellingsOf(DeviceChoice) { return std::array{"auto", "cpu", "cuda"}; }

struct BackendOptions : CpuBackendOptions {
  DeviceChoice device = DeviceChoice::kAuto;
  // This process among those of its machine: they take the GPUs in turn.
  int local_rank = 0;
  // What will be computed in: where that is slow, the machine's first process says so in the log.
  DType dtype = DType::kFloat32;
  // File of the products' pinned algorithms (kernels/cuda/FORMAT.md), "": none; one rank of a job
  // writes it.
  std::string gemm_table;
  bool writes_gemm_table = true;
};

// Says in the log why kAuto found no GPU that it can use, where the program was built for one; a
// warning if there is one, of a chip without code or without cuBLASLt. Errors: InvalidArgument for
// num_threads, and as CheckDevice for the rank's own GPU; Unavailable for kCuda with one that does
// not answer, in one line; NotFound without cuBLASLt; DataLoss for a damaged table.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);
// Whether an error of the CUDA backend is such that kAuto takes the CPU. A damaged table or too
// little memory is the user's to know.
bool IsWithoutUsableGpu(const absl::Status& status);

// InvalidArgument, in one line, if `device` is kCuda and this machine has no GPU or driver for it,
// its first one is of a chip that this program has no code for, or this program has no CUDA:
// starting again would not help.
absl::Status CheckDevice(DeviceChoice device);

// How much memory the GPUs of this machine have, for what is decided before one is opened.
struct DeviceMemory {
  int64_t devices = 0;  // that ranks would compute on; 0: they compute in the host's memory
  int64_t bytes = 0;    // total memory of the smallest, used or free
  std::string name;     // of the last
};
// Opens no GPU.
DeviceMemory MemoryOfDevices(DeviceChoice device);

// "2.6.3"
std::string OneDnnVersion();

// The CPU with its vector instructions, then each GPU, or why there is none. Opens no GPU.
std::vector<std::string> ListDevices();

}  // namespace anyorder::kernels
