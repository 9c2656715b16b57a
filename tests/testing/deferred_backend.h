// A device as far as order and memory go, for code that moves data beside a computation: operations
// run on a thread of their own, some time after they were asked for, each stream in its order and
// streams against each other as badly as events allow. The host cannot touch device memory
// (fenced_memory.h).
//
// Each rank of a test has one of its own.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "tests/testing/fenced_memory.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {

// Who is late.
enum class Lag {
  kMain,    // the computation: what should have waited for it has run
  kSide,    // all other streams
  kRandom,  // by the seed
};

class DeferredBackend final : public ForwardingBackend {
 public:
  explicit DeferredBackend(std::unique_ptr<kernels::Backend> inner, Lag lag, uint64_t seed = 0);
  // All buffers, streams and events must be gone.
  ~DeferredBackend() override;

  std::string name() const override { return "deferred"; }
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateStaging(int64_t bytes) override {
    return FencedMemory::AllocateStaging(memory_, bytes);
  }
  bool is_host_memory() const override { return false; }
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) override;
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) override;
  void CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView stream) override;
  void Synchronize(StreamView stream) override;
  std::string device_id() const override { return device_id_; }
  absl::StatusOr<std::unique_ptr<kernels::Stream>> MakeStream(kernels::StreamPurpose) override;
  absl::StatusOr<std::unique_ptr<kernels::Event>> MakeEvent() override;

  // Another operation of the device's, such as a message.
  void Run(StreamView stream, std::function<void()> work);
  // Where device memory is open while such an operation runs.
  const FencedMemory& memory() const { return *memory_; }

  void set_device_id(std::string id) { device_id_ = std::move(id); }
  // Side streams do nothing from now on, or go on.
  void StallSideStreams(bool stall);
  // What every event's IsReached answers from now on.
  void FailEvents(const absl::Status& status);

 private:
  friend class DeferredBuffer;
  friend class DeferredEvent;
  friend class DeferredStream;
  struct Mark {
    int64_t recorded = 0;  // marks asked for
    int64_t reached = 0;
  };
  struct Task {
    std::function<void()> work;  // null: an event's
    std::shared_ptr<Mark> mark;
    int64_t number = 0;    // of the mark
    bool is_wait = false;  // for the mark; else makes it
  };
  struct Queue {
    std::deque<Task> tasks;
    bool is_busy = false;
  };

  void Enqueue(const kernels::Operation& operation, StreamView stream) override;
  Queue& QueueOf(StreamView stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stream.handle == nullptr ? main_ : *static_cast<Queue*>(stream.handle);
  }
  void Push(StreamView stream, Task task);
  Queue* ChooseQueue(bool is_idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  const Lag lag_;
  std::string device_id_ = "device";
  const std::shared_ptr<FencedMemory> memory_ = std::make_shared<FencedMemory>();

  mutable Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  Queue main_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Queue>> side_ ABSL_GUARDED_BY(mutex_);
  int64_t num_changes_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that may give the device work
  int waiters_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stalls_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status event_error_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::testing
