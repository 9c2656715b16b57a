#include "kernels/cuda/emulation/runtime_emulated.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/stream.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

struct Stream;

// One mark of an event in a stream. A wait holds on to the mark that was the newest when it was asked for.
struct Mark {
  Stream* stream = nullptr;
  bool reached = false;
  double milliseconds = 0;
};
struct Work {
  std::function<void()> run;
  std::shared_ptr<Mark> waits_for;
};
struct Stream {
  std::recursive_mutex* mutex = nullptr;
  std::deque<Work> queue;
  bool is_capturing = false;
  std::vector<std::function<void()>> captured;
};
struct Event {
  std::shared_ptr<Mark> mark;
  bool is_timed = false;
};
struct Graph {
  std::vector<std::function<void()>> work;
};

class EmulatedRuntime final : public Runtime {
 public:
  explicit EmulatedRuntime(const EmulatedDevice& device)
      : schedule_(device.schedule),
        random_(device.schedule.seed, RandomPurpose::kPermutation, 0, 1),
        fuses_sums_(device.fuses_sums),
        milliseconds_(device.milliseconds) {
    properties_.name = "emulated GPU";
    properties_.identity = absl::StrCat("emulated ", reinterpret_cast<uintptr_t>(this));
    properties_.chip = kOldestChip;
    properties_.multiprocessors = 1;
    properties_.total_bytes = device.memory_bytes;
    properties_.shared_bytes_per_block = 163 * 1024;
    main_ = MakeStream(StreamPurpose::kMessages);
  }
  ~EmulatedRuntime() override {
    RunAll();
    ANYORDER_CHECK(streams_.size() == 1) << streams_.size() - 1 << " streams are left";
    ANYORDER_CHECK(blocks_.empty()) << blocks_.size() << " blocks of device memory are left";
  }

  const DeviceProperties& properties() const override { return properties_; }
  bool is_emulated() const override { return true; }
  bool fuses_sums() const { return fuses_sums_; }

  absl::StatusOr<void*> AllocateDevice(int64_t bytes) override;
  void FreeDevice(void* data) override;
  DeviceMemoryInfo memory() const override {
    return {properties_.total_bytes - used_, properties_.total_bytes};
  }
  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override;
  void FreePinned(void* data) override {
    UnregisterHost(data);
    std::free(data);
  }
  absl::Status RegisterHost(void* data, int64_t bytes) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    pinned_[static_cast<const char*>(data)] = bytes;
    return absl::OkStatus();
  }
  void UnregisterHost(void* data) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    RunAll();
    ANYORDER_CHECK(pinned_.erase(static_cast<const char*>(data)) == 1) << "memory is not pinned";
  }
  bool IsPinned(const void* data) const override { return PinnedBytesFrom(data) > 0; }

  void CopyToDevice(const void* pinned, void* device, int64_t bytes, StreamView stream) override {
    CheckPinned(pinned, bytes);
    Push(stream, [=] { std::memcpy(device, pinned, static_cast<size_t>(bytes)); });
  }
  void CopyToHost(const void* device, void* pinned, int64_t bytes, StreamView stream) override {
    CheckPinned(pinned, bytes);
    // Nobody may count on what was there.
    std::memset(pinned, 0xff, static_cast<size_t>(bytes));
    Push(stream, [=] { std::memcpy(pinned, device, static_cast<size_t>(bytes)); });
  }
  void CopyOnDevice(const void* from, void* to, int64_t bytes, StreamView stream) override {
    Push(stream, [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  void FillBytes(void* device, int value, int64_t bytes, StreamView stream) override {
    Push(stream, [=] { std::memset(device, value, static_cast<size_t>(bytes)); });
  }
  StreamView main_stream() const override { return main_; }
  StreamView MakeStream(StreamPurpose) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    auto stream = std::make_unique<Stream>();
    stream->mutex = &mutex_;
    const StreamView view{stream.get()};
    streams_.push_back(std::move(stream));
    return view;
  }
  void DestroyStream(StreamView stream) override;
  void Synchronize(StreamView stream) override;

  EventView MakeEvent() override { return {new Event}; }
  EventView MakeTimedEvent() override { return {new Event{.mark = nullptr, .is_timed = true}}; }
  void DestroyEvent(EventView event) override { delete EventOf(event); }
  void Record(EventView event, StreamView stream) override;
  void Wait(StreamView stream, EventView event) override;
  void Synchronize(EventView event) override;
  bool IsDone(EventView event) override;
  double MillisecondsBetween(EventView begin, EventView end) override;

  void BeginCapture(StreamView stream) override;
  void EndCapture(StreamView stream, GraphView* graph) override;
  bool IsCapturing(StreamView stream) const override {
    return StreamOf(Resolve(stream)).is_capturing;
  }
  void Launch(GraphView graph, StreamView stream) override;
  void DestroyGraph(GraphView graph) override { delete static_cast<Graph*>(graph.handle); }

  absl::Status LastError() override { return absl::OkStatus(); }

 private:
  static Stream& StreamOf(StreamView stream) { return *static_cast<Stream*>(stream.handle); }
  static Event* EventOf(EventView event) { return static_cast<Event*>(event.handle); }
  void Push(StreamView stream, std::function<void()> work) {
    Enqueue(Resolve(stream), std::move(work));
  }
  // Bytes of pinned memory from `data` on.
  int64_t PinnedBytesFrom(const void* data) const;
  void CheckPinned(const void* data, int64_t bytes) const {
    ANYORDER_CHECK(bytes == 0 || PinnedBytesFrom(data) >= bytes)
        << "a copy of " << bytes << " bytes that are not pinned";
  }
  // One piece of work of `stream`, or of the stream that it waits for.
  void Step(Stream& stream);
  void RunUntilReached(const Mark& mark) {
    while (!mark.reached)
      Step(*mark.stream);
  }
  void RunAll();
  double Milliseconds() const {
    using Span = std::chrono::duration<double, std::milli>;
    if (milliseconds_ != nullptr) return *milliseconds_;
    return Span(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  const Schedule schedule_;
  RandomStream random_;
  const bool fuses_sums_;
  const double* const milliseconds_;
  uint64_t num_steps_ = 0;
  DeviceProperties properties_;
  mutable std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
  StreamView main_;
  std::map<void*, int64_t> blocks_;
  std::map<const char*, int64_t> pinned_;
  int64_t used_ = 0;
};

absl::StatusOr<void*> EmulatedRuntime::AllocateDevice(int64_t bytes) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (const auto& stream : streams_)
    ANYORDER_CHECK(!stream->is_capturing) << "an allocation while a graph is captured";
  void* data = bytes <= memory().free_bytes ? AllocateFenced(bytes) : nullptr;
  if (data == nullptr) return OutOfDeviceMemory(bytes, memory(), properties_);
  blocks_[data] = bytes;
  used_ += bytes;
  return data;
}

void EmulatedRuntime::FreeDevice(void* data) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  RunAll();
  const auto block = blocks_.find(data);
  ANYORDER_CHECK(block != blocks_.end()) << "freed what is no block of this GPU's memory";
  used_ -= block->second;
  blocks_.erase(block);
  FreeFenced(data);
}

absl::StatusOr<void*> EmulatedRuntime::AllocatePinned(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  const int64_t whole = (bytes / kPage + 1) * kPage;
  void* data = std::aligned_alloc(kPage, static_cast<size_t>(whole));
  if (data == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("pin ", bytes, " bytes of host memory"));
  ANYORDER_CHECK_OK(RegisterHost(data, whole));
  return data;
}

int64_t EmulatedRuntime::PinnedBytesFrom(const void* data) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto* at = static_cast<const char*>(data);
  auto block = pinned_.upper_bound(at);
  if (block == pinned_.begin()) return 0;
  --block;
  return block->first + block->second - at;
}

void EmulatedRuntime::DestroyStream(StreamView stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  ANYORDER_CHECK(stream.handle != nullptr && stream.handle != main_.handle);
  RunAll();
  std::erase_if(streams_, [&](const auto& other) { return other.get() == stream.handle; });
}

void EmulatedRuntime::Synchronize(StreamView stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Stream& of = StreamOf(Resolve(stream));
  ANYORDER_CHECK(!of.is_capturing) << "a stream is synchronised while it is captured";
  while (!of.queue.empty())
    Step(of);
}

void EmulatedRuntime::Record(EventView event, StreamView stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Stream& of = StreamOf(Resolve(stream));
  ANYORDER_CHECK(!of.is_capturing) << "an event in a captured stream";
  auto mark = std::make_shared<Mark>();
  mark->stream = &of;
  of.queue.push_back({[mark, this] {
                        mark->reached = true;
                        mark->milliseconds = Milliseconds();
                      },
                      nullptr});
  EventOf(event)->mark = std::move(mark);
}

void EmulatedRuntime::Wait(StreamView stream, EventView event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Stream& of = StreamOf(Resolve(stream));
  ANYORDER_CHECK(!of.is_capturing) << "a wait in a captured stream";
  if (EventOf(event)->mark != nullptr) of.queue.push_back({[] {}, EventOf(event)->mark});
}

void EmulatedRuntime::Synchronize(EventView event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (EventOf(event)->mark != nullptr) RunUntilReached(*EventOf(event)->mark);
}

// Asking brings it nearer, or a loop that asks would never end.
bool EmulatedRuntime::IsDone(EventView event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const std::shared_ptr<Mark> mark = EventOf(event)->mark;
  if (mark == nullptr || mark->reached) return true;
  Step(*mark->stream);
  return mark->reached;
}

double EmulatedRuntime::MillisecondsBetween(EventView begin, EventView end) {
  ANYORDER_CHECK(EventOf(begin)->is_timed && EventOf(end)->is_timed) << "events without times";
  Synchronize(begin);
  Synchronize(end);
  return EventOf(end)->mark->milliseconds - EventOf(begin)->mark->milliseconds;
}

void EmulatedRuntime::BeginCapture(StreamView stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Stream& of = StreamOf(Resolve(stream));
  ANYORDER_CHECK(!of.is_capturing);
  of.is_capturing = true;
}

void EmulatedRuntime::EndCapture(StreamView stream, GraphView* graph) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Stream& of = StreamOf(Resolve(stream));
  ANYORDER_CHECK(of.is_capturing);
  of.is_capturing = false;
  if (graph->handle == nullptr) graph->handle = new Graph;
  static_cast<Graph*>(graph->handle)->work = std::exchange(of.captured, {});
}

void EmulatedRuntime::Launch(GraphView graph, StreamView stream) {
  for (const auto& work : static_cast<Graph*>(graph.handle)->work)
    Push(stream, work);
}

void EmulatedRuntime::Step(Stream& stream) {
  Stream* chosen = &stream;
  if (schedule_.seed != 0) {
    Stream* other = streams_[random_.Below(static_cast<uint32_t>(streams_.size()))].get();
    if (!other->queue.empty()) chosen = other;
  }
  ANYORDER_CHECK(!chosen->queue.empty());
  while (chosen->queue.front().waits_for != nullptr && !chosen->queue.front().waits_for->reached)
    chosen = chosen->queue.front().waits_for->stream;
  const Work work = std::move(chosen->queue.front());
  chosen->queue.pop_front();
  SetSchedule({schedule_.seed == 0 ? 0 : schedule_.seed + num_steps_++});
  const DeviceAccess access;
  work.run();
}

void EmulatedRuntime::RunAll() {
  for (const auto& stream : streams_) {
    while (!stream->queue.empty())
      Step(*stream);
  }
}

}  // namespace

void Enqueue(StreamView view, std::function<void()> work) {
  if (view.handle == nullptr) {
    const DeviceAccess access;
    work();
    return;
  }
  auto& stream = *static_cast<Stream*>(view.handle);
  const std::lock_guard<std::recursive_mutex> lock(*stream.mutex);
  if (stream.is_capturing) {
    stream.captured.push_back(std::move(work));
  } else {
    stream.queue.push_back({std::move(work), nullptr});
  }
}

std::unique_ptr<Runtime> MakeEmulatedRuntime(const EmulatedDevice& device) {
  return std::make_unique<EmulatedRuntime>(device);
}

bool FusesSums(const Runtime& runtime) {
  ANYORDER_CHECK(runtime.is_emulated()) << "a runtime that is not the emulation's";
  return static_cast<const EmulatedRuntime&>(runtime).fuses_sums();
}

}  // namespace anyorder::kernels::cuda::emulation
