#include "kernels/backends/make_backend.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cuda/cuda_backend.h"

namespace anyorder::kernels {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(const BackendOptions& options, int count) {
  ASSIGN_OR_RETURN(std::unique_ptr<cuda::Runtime> runtime,
                   cuda::OpenDevice(options.local_rank % count));
  return cuda::MakeCudaBackend(std::move(runtime), {options.gemm_table, options.writes_gemm_table});
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpu(const BackendOptions& options) {
  if (options.dtype == DType::kBFloat16 && options.local_rank == 0 && !cpu::MultipliesBFloat16())
    Log("no instructions for bf16 here: products in fp32, slower than with model.dtype = \"fp32\"");
  return MakeCpuBackend(options);
}

// Those that the kernels, ours or oneDNN's, have code for, as Linux spells them.
constexpr std::array kVectorInstructions = {"avx2",        "fma",      "avx512f", "avx512_vnni",
                                            "avx512_bf16", "amx_bf16", "asimd",   "sve"};

// "model name : x" of the first processor; "" if there is no such line.
std::string FirstValue(const std::vector<std::string>& lines, const char* key) {
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (words.size() == 2 && absl::StripAsciiWhitespace(words[0]) == key)
      return std::string(absl::StripAsciiWhitespace(words[1]));
  }
  return "";
}

std::string DescribeCpu() {
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line) && !(line.empty() && !lines.empty());)
    lines.push_back(line);
  const std::string model = FirstValue(lines, "model name");
  // x86's name, then Arm's.
  const std::string flags = absl::StrCat(FirstValue(lines, "flags"), FirstValue(lines, "Features"));
  const std::set<std::string> found = absl::StrSplit(flags, ' ');
  std::vector<std::string> vector_instructions;
  for (const char* name : kVectorInstructions)
    if (found.contains(name)) vector_instructions.emplace_back(name);
  return absl::StrCat("CPU, ", model.empty() ? "unknown model" : model, ", ",
                      vector_instructions.empty() ? "no vector instructions known"
                                                  : absl::StrJoin(vector_instructions, " "));
}

std::string DescribeGpu(int device) {
  const absl::StatusOr<cuda::DeviceProperties> gpu = cuda::DescribeDevice(device);
  if (!gpu.ok()) return absl::StrCat("GPU ", device, ", ", gpu.status().message());
  return absl::StrFormat("GPU %d, %s, sm_%d, %.1f GiB, driver for CUDA %d.%d", device, gpu->name,
                         gpu->chip, static_cast<double>(gpu->total_bytes) / (int64_t{1} << 30),
                         gpu->driver_version / 1000, gpu->driver_version % 1000 / 10);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.device == DeviceChoice::kCpu) return MakeCpu(options);
  const bool is_auto = options.device == DeviceChoice::kAuto;
  const absl::StatusOr<int> count = cuda::CountDevices();
  if (!count.ok()) {
    if (!is_auto) return count.status();
    // A machine that never had a GPU is no news.
    if (cuda::HasDriver() && options.local_rank == 0)
      Log(absl::StrCat("computing on the CPU: ", count.status().message()));
    return MakeCpu(options);
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeGpuBackend(options, *count);
  if (!is_auto || !IsWithoutUsableGpu(backend.status())) return backend;
  // Every rank says so: where only some have a GPU that will do, the job ends, and their lines tell
  // why.
  LogWarning(
      absl::StrCat("computing on the CPU although there is a GPU: ", backend.status().message()));
  return MakeCpu(options);
}

bool IsWithoutUsableGpu(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnavailable(status) || absl::IsNotFound(status);
}

absl::Status CheckDevice(DeviceChoice device) {
  return device == DeviceChoice::kCuda ? cuda::CheckFirstDevice() : absl::OkStatus();
}

DeviceMemory MemoryOfDevices(DeviceChoice device) {
  DeviceMemory memory;
  if (device == DeviceChoice::kCpu || !cuda::CheckFirstDevice().ok()) return memory;
  const int count = cuda::CountDevices().value_or(0);
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<cuda::DeviceProperties> gpu = cuda::DescribeDevice(i);
    if (!gpu.ok()) return {};
    memory.name = gpu->name;
    memory.bytes = i == 0 ? gpu->total_bytes : std::min(memory.bytes, gpu->total_bytes);
  }
  memory.devices = count;
  return memory;
}

std::string OneDnnVersion() { return cpu::OneDnnVersion(); }

std::vector<std::string> ListDevices() {
  std::vector<std::string> devices = {DescribeCpu()};
  const absl::StatusOr<int> count = cuda::CountDevices();
  if (!count.ok()) devices.push_back(absl::StrCat("no GPU: ", count.status().message()));
  for (int i = 0; i < count.value_or(0); ++i) devices.push_back(DescribeGpu(i));
  return devices;
}

}  // namespace anyorder::kernels
