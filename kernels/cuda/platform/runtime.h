// What the product asks of the CUDA runtime, and nothing else: the GPU's (runtime_device.cc) or the
// emulation's (tests/emulated_gpu), which has device memory that host code cannot touch and streams
// that run late.
//
// One object is one GPU, used by one thread at a time unless said otherwise. A null StreamView is
// the runtime's main stream everywhere. Calls that cannot fail but by our own mistake, or because
// the GPU died, end the program with the runtime's words.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/stream.h"
#include "kernels/device_queue.h"

namespace anyorder::kernels::cuda {

// The oldest chip that the kernels are made for: asynchronous copies and bf16 products of sm_80.
inline constexpr int kOldestChip = 80;
// The other one that there is code for; its own instructions are in it, so that no other chip can
// run it.
inline constexpr int kNewestChip = 90;

struct DeviceProperties {
  std::string name;      // "NVIDIA H200"
  std::string identity;  // of this very GPU, the same in every process of a machine
  int chip = 0;          // 90 for compute capability 9.0
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  int64_t shared_bytes_per_block = 0;
  int driver_version = 0;   // of CUDA, 13000 for 13.0: the newest one that the driver can run
  int runtime_version = 0;  // that the program was built with
};

struct DeviceMemoryInfo {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

// Made and destroyed by the runtime.
struct EventView {
  void* handle = nullptr;
};
// An executable graph.
struct GraphView {
  void* handle = nullptr;
};

class StreamScratch;

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const DeviceProperties& properties() const = 0;

  // Device memory, 256-byte aligned, not zeroed. ResourceExhausted with what was asked and what is
  // free. Freeing waits for the GPU.
  virtual absl::StatusOr<void*> AllocateDevice(int64_t bytes) = 0;
  virtual void FreeDevice(void* data) = 0;
  virtual DeviceMemoryInfo memory() const = 0;
  // Memory for operations; this object outlives it.
  virtual std::unique_ptr<StreamScratch> MakeScratch() = 0;

  // Host memory that copies move without the driver's help and therefore in the background, and
  // that kernels reach at the same address.
  virtual absl::StatusOr<void*> AllocatePinned(int64_t bytes) = 0;
  virtual void FreePinned(void* data) = 0;
  // Makes memory of the caller so, pages of a memfd for example; whole pages.
  virtual absl::Status RegisterHost(void* data, int64_t bytes) = 0;
  virtual void UnregisterHost(void* data) = 0;
  virtual bool IsPinned(const void* data) const = 0;

  // In stream order. Host memory must be pinned and is read or written some time before the stream
  // is synchronised. What AllocatePinned gave is as good as device memory.
  virtual void CopyToDevice(const void* pinned, void* device, int64_t bytes, StreamView stream) = 0;
  virtual void CopyToHost(const void* device, void* pinned, int64_t bytes, StreamView stream) = 0;
  virtual void CopyOnDevice(const void* from, void* to, int64_t bytes, StreamView stream) = 0;
  virtual void FillBytes(void* device, int value, int64_t bytes, StreamView stream) = 0;

  virtual StreamView main_stream() const = 0;
  StreamView Resolve(StreamView stream) const {
    return stream.handle == nullptr ? main_stream() : stream;
  }
  // A stream that the main stream does not wait for, nor it for the main stream. Of blocks that
  // wait for room on the GPU those of messages go before the main stream's, those of copies after
  // (PriorityOf).
  virtual StreamView MakeStream(StreamPurpose purpose) = 0;
  virtual void DestroyStream(StreamView stream) = 0;
  virtual void Synchronize(StreamView stream) = 0;

  virtual EventView MakeEvent() = 0;
  // With the time of its mark, which costs the GPU a little.
  virtual EventView MakeTimedEvent() = 0;
  virtual void DestroyEvent(EventView event) = 0;
  // Marks all that the stream was asked for so far; a later mark replaces an earlier one.
  virtual void Record(EventView event, StreamView stream) = 0;
  // What `stream` is asked for from now on waits for the mark. No effect for an event without one.
  virtual void Wait(StreamView stream, EventView event) = 0;
  virtual void Synchronize(EventView event) = 0;
  virtual bool IsDone(EventView event) = 0;
  // Between the marks of two timed events. Waits for both.
  virtual double MillisecondsBetween(EventView begin, EventView end) = 0;

  // From BeginCapture to EndCapture, by one thread, the stream is not run but written down.
  // EndCapture makes `graph` of it, or brings that graph up to date; what allocates, frees, waits
  // or queries an event has no place between the two in that thread.
  virtual void BeginCapture(StreamView stream) = 0;
  virtual void EndCapture(StreamView stream, GraphView* graph) = 0;
  virtual bool IsCapturing(StreamView stream) const = 0;
  virtual void Launch(GraphView graph, StreamView stream) = 0;
  virtual void DestroyGraph(GraphView graph) = 0;
  // How often EndCapture could not bring a graph up to date and made another in its place.
  int64_t num_reinstantiated_graphs() const { return num_reinstantiated_graphs_; }

  // What the GPU has to say of work that was asked for earlier; OK if nothing is wrong so far.
  virtual absl::Status LastError() = 0;

 protected:
  // Logs the 1st, 2nd, 4th, 8th and so on.
  void CountReinstantiation(absl::string_view why);

 private:
  int64_t num_reinstantiated_graphs_ = 0;
};

// Device memory that operations take for themselves: a block for each stream, whose operations use
// it one after another. It grows when a shape comes up for the first time and keeps its size. Made
// by Runtime::MakeScratch.
class StreamScratch {
 public:
  explicit StreamScratch(Runtime& runtime) : runtime_(runtime) {}
  virtual ~StreamScratch();
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  // The block of `stream` has at least so many bytes from now on. ResourceExhausted.
  absl::Status Reserve(int64_t bytes, StreamView stream);
  // For the operation that comes next on `stream`, which finds any values there. A lack of memory
  // ends the program; a block that would have to grow inside of a graph aborts.
  virtual void* Take(int64_t bytes, StreamView stream);

 protected:
  Runtime& runtime() { return runtime_; }

 private:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  void Free(Block& block);

  Runtime& runtime_;
  std::map<void*, Block> blocks_;
};

// CUDA's priorities of streams, smaller goes first, from those of a GPU: `least` is the largest
// number. With two only, copies share the main stream's; with one, all are alike.
constexpr int MainPriority(int least, int greatest) {
  return least - greatest >= 2 ? least - 1 : least;
}
constexpr int PriorityOf(StreamPurpose purpose, int least, int greatest) {
  return purpose == StreamPurpose::kMessages ? greatest : least;
}

// Whether a driver is installed, whatever it can do; false in a program without CUDA.
bool HasDriver();
// How many GPUs this program can see, at least one. InvalidArgument where there is none, no driver,
// or one older than the runtime (both versions are said): another start would not find one either.
// Unavailable if there are some that cannot be used now.
absl::StatusOr<int> CountDevices();
// What CountDevices and CheckChip say of the first of them, without opening it.
absl::Status CheckFirstDevice();
// GPU number `device` of them, without opening it. Unavailable if it does not answer.
absl::StatusOr<DeviceProperties> DescribeDevice(int device);
// GPU number `device` of them. InvalidArgument if CheckChip refuses it, Unavailable if it does not
// answer.
absl::StatusOr<std::unique_ptr<Runtime>> OpenDevice(int device);

// What to do where device memory is short.
inline constexpr char kLessDeviceMemory[] =
    "use a smaller train.micro_batch_size or model, or fewer ranks on a GPU";
// What both kinds of runtime say of an allocation that did not fit, and of a chip.
absl::Status OutOfDeviceMemory(int64_t bytes, const DeviceMemoryInfo& memory,
                               const DeviceProperties& device);
// InvalidArgument unless this program's kernels run on it: another start would find the same chip.
absl::Status CheckChip(const DeviceProperties& device);

// For operations, which have nobody to return an error to: ends the program with one line and the
// status's exit status.
[[noreturn]] void EndWith(const absl::Status& status);

}  // namespace anyorder::kernels::cuda
