#include "kernels/cuda/platform/runtime.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "kernels/cuda/platform/launch_error.h"
#include "kernels/cuda/platform/launch_shape.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr char kGraph = 0;  // its address stands for the launch of a graph
thread_local const void* last_launch = nullptr;

std::string LastLaunch() {
  if (last_launch == nullptr) return "this thread has launched no kernel of ours";
  if (last_launch == &kGraph) return "this thread's last launch is a graph";
  return absl::StrCat("this thread's last launch is ", KernelName(last_launch));
}

}  // namespace

absl::Status OutOfDeviceMemory(int64_t bytes, const DeviceMemoryInfo& memory,
                               const DeviceProperties& device) {
  return ResourceExhausted("allocate ", bytes, " bytes on ", device.name, ": ", memory.free_bytes,
                           " of its ", memory.total_bytes, " are free; ", kLessDeviceMemory);
}

absl::Status CheckChip(const DeviceProperties& device) {
  if (device.chip == kOldestChip || device.chip == kNewestChip) return absl::OkStatus();
  // Code of sm_80 runs on all of compute capability 8, where a block may have less memory than the
  // kernels are made for.
  if (device.chip / 10 == kOldestChip / 10 && device.shared_bytes_per_block >= kMostSharedBytes)
    return absl::OkStatus();
  return InvalidArgument(
      device.name, " (sm_", device.chip, ", ", device.shared_bytes_per_block / 1024,
      " KiB of shared memory a block) is not supported: this program has code for sm_", kOldestChip,
      " (A100), sm_", kNewestChip, " (H100, H200) and others of sm_8x with ",
      kMostSharedBytes / 1024, " KiB; choose another GPU, or train.device = \"cpu\"");
}

std::string SymbolOf(const void* function) {
  char name[512];
  if (!absl::Symbolize(function, name, sizeof name)) return "a function without a name";
  return name;
}

void NoteLaunch(const void* kernel) { last_launch = kernel == nullptr ? &kGraph : kernel; }

void EndAtDeviceError(DeviceError error, absl::string_view what, absl::string_view words) {
  const std::string text = absl::StrCat(what, ": ", words, "; ", LastLaunch());
  if (error == DeviceError::kNoMemory) EndWith(absl::ResourceExhaustedError(text));
  if (error == DeviceError::kHardware) {
    // The launcher starts the rank again.
    EndWith(Unavailable("the GPU failed: ", text, "; see nvidia-smi and dmesg"));
  }
  ANYORDER_CHECK(false) << text
                        << "; run again with CUDA_LAUNCH_BLOCKING=1: then the launch named here is "
                           "the one that failed";
  std::abort();
}

void Runtime::CountReinstantiation(absl::string_view why) {
  const int64_t times = ++num_reinstantiated_graphs_;
  // A graph that changes in every step would fill the log.
  if ((times & (times - 1)) != 0) return;
  LogWarning(absl::StrCat(
      "a captured graph could not be updated and was instantiated again, which ",
      "takes milliseconds; ", times, times == 1 ? " time" : " times", " so far: ", why));
}

void EndWith(const absl::Status& status) {
  LogWarning(status.message());
  // At once: destructors would wait for work that cannot be started. Nothing of the step is saved;
  // the launcher ends the other ranks.
  ::_exit(ExitStatusFor(status));
}

StreamScratch::~StreamScratch() {
  for (auto& [stream, block] : blocks_) Free(block);
}

void StreamScratch::Free(Block& block) {
  if (block.data != nullptr) runtime_.FreeDevice(block.data);
  block = {};
}

absl::Status StreamScratch::Reserve(int64_t bytes, StreamView stream) {
  Block& block = blocks_[runtime_.Resolve(stream).handle];
  if (block.bytes >= bytes) return absl::OkStatus();
  ANYORDER_CHECK(!runtime_.IsCapturing(runtime_.Resolve(stream)))
      << "an operation needs " << bytes << " bytes of scratch for the first time inside of a graph";
  Free(block);
  ASSIGN_OR_RETURN(block.data, runtime_.AllocateDevice(bytes));
  block.bytes = bytes;
  return absl::OkStatus();
}

void* StreamScratch::Take(int64_t bytes, StreamView stream) {
  if (const absl::Status status = Reserve(bytes, stream); !status.ok()) EndWith(status);
  return blocks_[runtime_.Resolve(stream).handle].data;
}

}  // namespace anyorder::kernels::cuda
