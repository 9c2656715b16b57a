#include "kernels/backends/device_list.h"

#include <array>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "kernels/cpu/gemm.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels {
namespace {

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

std::string OneDnnVersion() { return cpu::OneDnnVersion(); }

std::vector<std::string> ListDevices() {
  std::vector<std::string> devices = {DescribeCpu()};
  const absl::StatusOr<int> count = cuda::CountDevices();
  if (!count.ok()) devices.push_back(absl::StrCat("no GPU: ", count.status().message()));
  for (int i = 0; i < count.value_or(0); ++i) devices.push_back(DescribeGpu(i));
  return devices;
}

}  // namespace anyorder::kernels
