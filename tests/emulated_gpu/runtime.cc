#include "tests/emulated_gpu/runtime.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "kernels/cuda/platform/launch_error.h"
#include "tests/emulated_gpu/guarded_pages.h"

namespace anyorder::kernels::cuda {

std::string KernelName(const void* kernel) { return SymbolOf(kernel); }

namespace emulation {
namespace {

class EmulatedRuntime;
struct Stream;

// One mark of an event in a stream. A wait holds on to the mark that was the newest when it was
// asked for.
struct Mark {
  Stream* stream = nullptr;
  bool reached = false;
  double milliseconds = 0;
};
enum class WorkKind { kKernel, kProduct, kCopy, kFill, kEvent };
struct Work {
  WorkKind kind;
  const void* kernel = nullptr;
  std::function<void()> run;
  std::shared_ptr<Mark> waits_for = nullptr;

  std::string Text() const {
    static constexpr const char* kTexts[] = {"", "a product", "a copy", "a fill", "an event"};
    return kind == WorkKind::kKernel ? KernelName(kernel) : kTexts[static_cast<int>(kind)];
  }
};
struct Stream {
  EmulatedRuntime* runtime = nullptr;
  std::deque<Work> queue;
  bool is_capturing = false;
  std::vector<Work> captured;
};
struct Event {
  std::shared_ptr<Mark> mark;
  bool is_timed = false;
};
using Graph = std::vector<Work>;

// Of this thread, in any runtime.
thread_local int captures = 0;

// Why a graph of `before` cannot be made one of `after` by an update; empty if it can. Kernels may
// change their parameters.
std::string WhyNotUpdated(const Graph& before, const Graph& after) {
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    if (before[i].kind != after[i].kind || before[i].kernel != after[i].kernel)
      return absl::StrCat("node ", i, " was ", before[i].Text(), " and is ", after[i].Text());
  }
  if (before.size() == after.size()) return "";
  return absl::StrCat(before.size(), " nodes became ", after.size());
}

// What an operation reads of its memory it must have written: anything else is not a number. Of a
// large workspace, a library's, the begin has to do.
class PoisonedScratch final : public StreamScratch {
 public:
  using StreamScratch::StreamScratch;
  void* Take(int64_t bytes, StreamView stream) override {
    void* const data = StreamScratch::Take(bytes, stream);
    const int64_t poisoned = std::min(bytes, int64_t{4} << 20);
    if (bytes > 0) runtime().FillBytes(data, 0xff, poisoned, runtime().Resolve(stream));
    return data;
  }
};

class EmulatedRuntime final : public Runtime {
 public:
  explicit EmulatedRuntime(const EmulatedDevice& device)
      : device_(device), random_(device.schedule.seed, RandomPurpose::kPermutation, 0, 1) {
    properties_.name = "emulated GPU";
    properties_.identity = absl::StrCat("emulated ", reinterpret_cast<uintptr_t>(this));
    properties_.chip = kOldestChip;
    properties_.multiprocessors = 1;
    properties_.total_bytes = device.memory_bytes;
    properties_.shared_bytes_per_block = 163 * 1024;
    main_ = MakeStream(StreamPurpose::kMessages);
  }
  ~EmulatedRuntime() override {
    Begin("the last work of a stream");
    RunAll();
    ANYORDER_CHECK(streams_.size() == 1) << streams_.size() - 1 << " streams are left";
    ANYORDER_CHECK(blocks_.empty()) << blocks_.size() << " blocks of device memory are left";
  }

  const DeviceProperties& properties() const override { return properties_; }
  bool fuses_sums() const { return device_.fuses_sums; }
  std::unique_ptr<StreamScratch> MakeScratch() override {
    return std::make_unique<PoisonedScratch>(*this);
  }

  absl::StatusOr<void*> AllocateDevice(int64_t bytes) override;
  void FreeDevice(void* data) override {
    const Lock lock = BeginOutsideOfCaptures("freeing of device memory");
    RunAll();
    const auto block = blocks_.find(data);
    ANYORDER_CHECK(block != blocks_.end()) << "freed what is no block of this GPU's memory";
    used_ -= block->second;
    blocks_.erase(block);
    FreeFenced(data);
  }
  DeviceMemoryInfo memory() const override {
    CheckGpu("size of device memory");
    if (captures > 0) Refuse("size of device memory");
    return {properties_.total_bytes - used_, properties_.total_bytes};
  }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override;
  void FreePinned(void* data) override {
    UnregisterHost(data);
    std::free(data);
  }
  absl::Status RegisterHost(void* data, int64_t bytes) override {
    const Lock lock = BeginOutsideOfCaptures("registration of host memory");
    pinned_[static_cast<const char*>(data)] = bytes;
    return absl::OkStatus();
  }
  void UnregisterHost(void* data) override {
    const Lock lock = BeginOutsideOfCaptures("release of host memory");
    RunAll();
    ANYORDER_CHECK(pinned_.erase(static_cast<const char*>(data)) == 1) << "memory is not pinned";
  }
  bool IsPinned(const void* data) const override { return PinnedBytesFrom(data) > 0; }

  void CopyToDevice(const void* pinned, void* device, int64_t bytes, StreamView stream) override {
    CheckPinned(pinned, bytes);
    Copy(pinned, device, bytes, stream);
  }
  void CopyToHost(const void* device, void* pinned, int64_t bytes, StreamView stream) override {
    CheckPinned(pinned, bytes);
    // Nobody may count on what was there.
    std::memset(pinned, 0xff, static_cast<size_t>(bytes));
    Copy(device, pinned, bytes, stream);
  }
  void CopyOnDevice(const void* from, void* to, int64_t bytes, StreamView stream) override {
    Copy(from, to, bytes, stream);
  }
  void FillBytes(void* device, int value, int64_t bytes, StreamView stream) override {
    const Lock lock = Begin("filling of device memory");
    Push(stream, {WorkKind::kFill, nullptr,
                  [=] { std::memset(device, value, static_cast<size_t>(bytes)); }});
  }
  StreamView main_stream() const override { return main_; }
  StreamView MakeStream(StreamPurpose) override {
    const Lock lock = BeginOutsideOfCaptures("making of a stream");
    auto stream = std::make_unique<Stream>();
    stream->runtime = this;
    const StreamView view{stream.get()};
    streams_.push_back(std::move(stream));
    return view;
  }
  void DestroyStream(StreamView stream) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    ANYORDER_CHECK(stream.handle != nullptr && stream.handle != main_.handle);
    BeginOutsideOfCaptures("destruction of a stream");
    RunAll();
    std::erase_if(streams_, [&](const auto& other) { return other.get() == stream.handle; });
  }
  void Synchronize(StreamView stream) override {
    const Lock lock = BeginOutsideOfCaptures("work on the GPU");
    Stream& of = StreamOf(Resolve(stream));
    const DeviceAccess access(
        nullptr);  // opening and closing for each piece of work takes longer than most of them
    while (!of.queue.empty()) Step(of);
    CheckGpu("work on the GPU");
  }

  EventView MakeEvent() override { return {new Event}; }
  EventView MakeTimedEvent() override { return {new Event{.mark = nullptr, .is_timed = true}}; }
  void DestroyEvent(EventView event) override { delete EventOf(event); }
  void Record(EventView event, StreamView stream) override;
  void Wait(StreamView stream, EventView event) override {
    const Lock lock = Begin("a stream's wait for an event");
    Stream& of = StreamOf(Resolve(stream));
    if (of.is_capturing) Refuse("a wait of the captured stream for an event");
    if (EventOf(event)->mark != nullptr)
      of.queue.push_back({WorkKind::kEvent, nullptr, [] {}, EventOf(event)->mark});
  }
  void Synchronize(EventView event) override {
    const Lock lock = BeginOutsideOfCaptures("work on the GPU");
    if (EventOf(event)->mark != nullptr) RunUntilReached(*EventOf(event)->mark);
    CheckGpu("work on the GPU");
  }
  // Asking brings it nearer, or a loop that asks would never end.
  bool IsDone(EventView event) override {
    const Lock lock = BeginOutsideOfCaptures("work on the GPU");
    const std::shared_ptr<Mark> mark = EventOf(event)->mark;
    if (mark == nullptr || mark->reached) return true;
    Step(*mark->stream);
    CheckGpu("work on the GPU");
    return mark->reached;
  }
  double MillisecondsBetween(EventView begin, EventView end) override {
    ANYORDER_CHECK(EventOf(begin)->is_timed && EventOf(end)->is_timed) << "events without times";
    Synchronize(begin);
    Synchronize(end);
    return EventOf(end)->mark->milliseconds - EventOf(begin)->mark->milliseconds;
  }

  void BeginCapture(StreamView stream) override {
    const Lock lock = BeginOutsideOfCaptures("begin of a graph");
    StreamOf(Resolve(stream)).is_capturing = true;
    ++captures;
  }
  void EndCapture(StreamView stream, GraphView* graph) override;
  bool IsCapturing(StreamView stream) const override {
    return StreamOf(Resolve(stream)).is_capturing;
  }
  void Launch(GraphView graph, StreamView stream) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    NoteLaunch(nullptr);
    Begin("start of a graph");
    for (const Work& work : *static_cast<Graph*>(graph.handle)) Push(stream, work);
  }
  void DestroyGraph(GraphView graph) override { delete static_cast<Graph*>(graph.handle); }

  absl::Status LastError() override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    CountCall();
    if (!has_failed_) return absl::OkStatus();
    return Unavailable(properties_.name, ": ", FaultWords());
  }

  // To the end of the stream, or into the graph that it is captured for. A null view is the main
  // stream.
  void Push(StreamView stream, Work work);

 private:
  static Stream& StreamOf(StreamView stream) { return *static_cast<Stream*>(stream.handle); }
  static Event* EventOf(EventView event) { return static_cast<Event*>(event.handle); }
  void Copy(const void* from, void* to, int64_t bytes, StreamView stream) {
    const Lock lock = Begin("a copy");
    Push(stream,
         {WorkKind::kCopy, nullptr, [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); }});
  }

  using Lock = std::unique_lock<std::recursive_mutex>;
  // Each call of the runtime begins here: ends the program if the GPU has failed by now.
  Lock Begin(const char* what) {
    Lock lock(mutex_);
    CountCall();
    CheckGpu(what);
    return lock;
  }
  Lock BeginOutsideOfCaptures(const char* what) {
    Lock lock = Begin(what);
    if (captures > 0) Refuse(what);
    return lock;
  }
  [[noreturn]] static void Refuse(const char* what) {
    EndAtDeviceError(DeviceError::kOurMistake, what,
                     "cudaErrorStreamCaptureUnsupported: a graph is being captured");
  }
  void CountCall() {
    if (calls_left_ > 0 && --calls_left_ == 0) has_failed_ = true;
  }
  void CheckGpu(const char* what) const {
    if (has_failed_)
      EndAtDeviceError(device_.fault.kind == KernelFault::Kind::kHardware
                           ? DeviceError::kHardware
                           : DeviceError::kOurMistake,
                       what, FaultWords());
  }
  const char* FaultWords() const {
    switch (device_.fault.kind) {
      case KernelFault::Kind::kRefused:
        return "cudaErrorInvalidConfiguration: invalid configuration argument";
      case KernelFault::Kind::kHardware:
        return "cudaErrorECCUncorrectable: uncorrectable ECC error encountered";
      default: return "cudaErrorIllegalAddress: an illegal memory access was encountered";
    }
  }
  // Puts the fault in its place if this is the kernel that fails.
  void CountKernel(Work& work);

  // Bytes of pinned memory from `data` on.
  int64_t PinnedBytesFrom(const void* data) const {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const auto* at = static_cast<const char*>(data);
    auto block = pinned_.upper_bound(at);
    if (block == pinned_.begin()) return 0;
    --block;
    return block->first + block->second - at;
  }
  void CheckPinned(const void* data, int64_t bytes) const {
    ANYORDER_CHECK(bytes == 0 || PinnedBytesFrom(data) >= bytes)
        << "a copy of " << bytes << " bytes that are not pinned";
  }
  // One piece of work of `stream`, or of the stream that it waits for.
  void Step(Stream& stream);
  void RunUntilReached(const Mark& mark) {
    const DeviceAccess access(nullptr);
    while (!mark.reached && !has_failed_) Step(*mark.stream);
  }
  void RunAll() {
    const DeviceAccess access(nullptr);
    for (const auto& stream : streams_) {
      while (!stream->queue.empty()) Step(*stream);
    }
    CheckGpu("work on the GPU");
  }
  double Milliseconds() const {
    using Span = std::chrono::duration<double, std::milli>;
    if (device_.milliseconds != nullptr) return *device_.milliseconds;
    return Span(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  const EmulatedDevice device_;
  RandomStream random_;
  int64_t num_kernels_ = 0;
  int64_t calls_left_ = 0;  // until a fault shows; 0: none waits to be shown
  bool has_failed_ = false;
  uint64_t num_steps_ = 0;
  DeviceProperties properties_;
  mutable std::recursive_mutex mutex_;  // calls make others, which clang could not follow
  std::vector<std::unique_ptr<Stream>> streams_;
  StreamView main_;
  std::map<void*, int64_t> blocks_;
  std::map<const char*, int64_t> pinned_;
  int64_t used_ = 0;
};

absl::StatusOr<void*> EmulatedRuntime::AllocateDevice(int64_t bytes) {
  const Lock lock = BeginOutsideOfCaptures("allocation of device memory");
  const bool is_at_begin = device_.schedule.seed != 0 && random_.Below(2) == 0;
  void* data = nullptr;
  if (bytes <= memory().free_bytes)
    data = AllocateFenced(bytes, is_at_begin ? Placement::kAtBegin : Placement::kAtEnd);
  if (data == nullptr) return OutOfDeviceMemory(bytes, memory(), properties_);
  blocks_[data] = bytes;
  used_ += bytes;
  return data;
}

absl::StatusOr<void*> EmulatedRuntime::AllocatePinned(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  const int64_t whole = (bytes / kPage + 1) * kPage;
  void* data = std::aligned_alloc(kPage, static_cast<size_t>(whole));
  if (data == nullptr) return ResourceExhausted("pin ", bytes, " bytes of host memory");
  ANYORDER_CHECK_OK(RegisterHost(data, whole));
  return data;
}

void EmulatedRuntime::Record(EventView event, StreamView stream) {
  const Lock lock = Begin("mark of an event");
  Stream& of = StreamOf(Resolve(stream));
  if (of.is_capturing) Refuse("mark of an event in the captured stream");
  auto mark = std::make_shared<Mark>();
  mark->stream = &of;
  of.queue.push_back({WorkKind::kEvent, nullptr, [mark, this] {
                        mark->reached = true;
                        mark->milliseconds = Milliseconds();
                      }});
  EventOf(event)->mark = std::move(mark);
}

void EmulatedRuntime::EndCapture(StreamView stream, GraphView* graph) {
  const Lock lock = Begin("end of a graph");
  Stream& of = StreamOf(Resolve(stream));
  ANYORDER_CHECK(of.is_capturing && captures > 0)
      << "the end of a capture that this thread has not begun";
  of.is_capturing = false;
  --captures;
  auto captured = std::make_unique<Graph>(std::exchange(of.captured, {}));
  const std::unique_ptr<Graph> before(static_cast<Graph*>(graph->handle));
  if (before != nullptr) {
    if (const std::string why = WhyNotUpdated(*before, *captured); !why.empty())
      CountReinstantiation(why);
  }
  graph->handle = captured.release();
}

void EmulatedRuntime::Push(StreamView view, Work work) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Stream& stream = StreamOf(Resolve(view));
  if (stream.is_capturing) {
    stream.captured.push_back(std::move(work));
    return;
  }
  if (work.kind == WorkKind::kKernel) CountKernel(work);
  stream.queue.push_back(std::move(work));
}

void EmulatedRuntime::CountKernel(Work& work) {
  Begin(kLaunchOfAKernel);
  if (device_.fault.kind == KernelFault::Kind::kNone || num_kernels_++ != device_.fault.kernel)
    return;
  if (device_.fault.kind == KernelFault::Kind::kRefused) {
    has_failed_ = true;
    CheckGpu(kLaunchOfAKernel);
  }
  calls_left_ = device_.fault.calls_later;
  work.run = [this] { has_failed_ = true; };
}

void EmulatedRuntime::Step(Stream& stream) {
  if (has_failed_) return stream.queue.clear();
  Stream* chosen = &stream;
  if (device_.schedule.seed != 0) {
    Stream* other = streams_[random_.Below(static_cast<uint32_t>(streams_.size()))].get();
    if (!other->queue.empty()) chosen = other;
  }
  ANYORDER_CHECK(!chosen->queue.empty());
  while (chosen->queue.front().waits_for != nullptr && !chosen->queue.front().waits_for->reached)
    chosen = chosen->queue.front().waits_for->stream;
  const Work work = std::move(chosen->queue.front());
  chosen->queue.pop_front();
  SetSchedule({device_.schedule.seed == 0 ? 0 : device_.schedule.seed + num_steps_++});
  const DeviceAccess access(work.kernel);
  work.run();
}

void EnqueueWork(StreamView view, Work work) {
  if (view.handle == nullptr) {
    const DeviceAccess access(work.kernel);
    work.run();
    return;
  }
  static_cast<Stream*>(view.handle)->runtime->Push(view, std::move(work));
}

}  // namespace

void Enqueue(StreamView stream, std::function<void()> work) {
  EnqueueWork(stream, {WorkKind::kProduct, nullptr, std::move(work)});
}
void EnqueueKernel(StreamView stream, const void* kernel, std::function<void()> work) {
  EnqueueWork(stream, {WorkKind::kKernel, kernel, std::move(work)});
}

std::unique_ptr<Runtime> MakeEmulatedRuntime(const EmulatedDevice& device) {
  return std::make_unique<EmulatedRuntime>(device);
}

bool FusesSums(const Runtime& runtime) {
  return dynamic_cast<const EmulatedRuntime&>(runtime).fuses_sums();
}

}  // namespace emulation
}  // namespace anyorder::kernels::cuda
