#include "tests/testing/deferred_backend.h"

#include <cstring>
#include <utility>

#include "core/base/status.h"

namespace anyorder::testing {

// Goes when all work is done.
class DeferredBuffer final : public FencedBuffer {
 public:
  DeferredBuffer(DeferredBackend& backend, void* data, int64_t bytes)
      : FencedBuffer(backend.memory_, data, bytes), backend_(backend) {}
  ~DeferredBuffer() override {
    for (const auto& queue : backend_.side_) backend_.Synchronize({queue.get()});
    backend_.Synchronize({});
  }

 private:
  DeferredBackend& backend_;
};

class DeferredStream final : public kernels::Stream {
 public:
  explicit DeferredStream(DeferredBackend::Queue* queue) : queue_(queue) {}
  StreamView view() const override { return {queue_}; }

 private:
  DeferredBackend::Queue* queue_;
};

class DeferredEvent final : public kernels::Event {
 public:
  explicit DeferredEvent(DeferredBackend& backend) : backend_(backend) {}
  void Record(StreamView stream) override {
    int64_t number = 0;
    {
      const MutexLock lock(&backend_.mutex_);
      number = ++mark_->recorded;
    }
    backend_.Push(stream, {nullptr, mark_, number, /*is_wait=*/false});
  }
  void Wait(StreamView stream) override {
    backend_.Push(stream, {nullptr, mark_, recorded(), /*is_wait=*/true});
  }
  absl::StatusOr<bool> IsReached() override {
    const MutexLock lock(&backend_.mutex_);
    if (!backend_.event_error_.ok()) return backend_.event_error_;
    return mark_->reached >= mark_->recorded;
  }
  void Await() override {
    const MutexLock lock(&backend_.mutex_);
    ++backend_.waiters_;
    ++backend_.num_changes_;
    backend_.mutex_.Await([this] { return mark_->reached >= mark_->recorded; });
    --backend_.waiters_;
  }

 private:
  int64_t recorded() const {
    const MutexLock lock(&backend_.mutex_);
    return mark_->recorded;
  }
  DeferredBackend& backend_;
  const std::shared_ptr<DeferredBackend::Mark> mark_ = std::make_shared<DeferredBackend::Mark>();
};

DeferredBackend::DeferredBackend(std::unique_ptr<kernels::Backend> inner, Lag lag, uint64_t seed)
    : ForwardingBackend(std::move(inner)), lag_(lag), random_(seed), thread_([this] { Work(); }) {}

DeferredBackend::~DeferredBackend() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    ++num_changes_;
  }
  thread_.join();
}

void DeferredBackend::Push(StreamView stream, Task task) {
  const MutexLock lock(&mutex_);
  QueueOf(stream).tasks.push_back(std::move(task));
  ++num_changes_;
}

void DeferredBackend::Run(StreamView stream, std::function<void()> work) {
  Push(stream, {std::move(work), nullptr});
}

// Whose first task runs next; null: nobody's yet. `is_idle`: nothing else has run for a while, so
// that the late ones may.
DeferredBackend::Queue* DeferredBackend::ChooseQueue(bool is_idle) {
  const auto is_ready = [](const Queue& queue) {
    if (queue.tasks.empty()) return false;
    const Task& task = queue.tasks.front();
    return !task.is_wait || task.mark->reached >= task.number;
  };
  std::vector<Queue*> ready;
  for (const auto& queue : side_) {
    if (!stalls_ && is_ready(*queue)) ready.push_back(queue.get());
  }
  const bool main_is_ready = is_ready(main_);
  const bool late_may_run = is_idle || waiters_ > 0;
  if (lag_ == Lag::kRandom && main_is_ready) ready.push_back(&main_);
  if (lag_ == Lag::kSide && main_is_ready) return &main_;
  if (lag_ == Lag::kSide && !late_may_run) return nullptr;
  if (!ready.empty()) return ready[random_() % ready.size()];
  return main_is_ready && late_may_run ? &main_ : nullptr;
}

void DeferredBackend::Work() {
  const MutexLock lock(&mutex_);
  bool is_idle = false;
  while (true) {
    Queue* const queue = ChooseQueue(is_idle);
    if (queue == nullptr) {
      if (stopping_ && is_idle) return;
      const auto has_changed = [this, before = num_changes_]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                                   mutex_) { return num_changes_ != before; };
      is_idle = !mutex_.AwaitWithTimeout(has_changed, absl::Milliseconds(1));
      continue;
    }
    is_idle = false;
    Task task = std::move(queue->tasks.front());
    queue->tasks.pop_front();
    if (task.work) {
      queue->is_busy = true;
      mutex_.Unlock();
      task.work();
      mutex_.Lock();
      queue->is_busy = false;
    } else if (!task.is_wait) {
      task.mark->reached = task.number;
    }
  }
}

void DeferredBackend::Synchronize(StreamView stream) {
  const MutexLock lock(&mutex_);
  Queue& queue = QueueOf(stream);
  ++waiters_;
  ++num_changes_;
  mutex_.Await([&queue] { return queue.tasks.empty() && !queue.is_busy; });
  --waiters_;
}

absl::StatusOr<std::unique_ptr<kernels::Buffer>> DeferredBackend::Allocate(int64_t bytes) {
  ASSIGN_OR_RETURN(void* const data, memory_->Allocate(bytes));
  return std::make_unique<DeferredBuffer>(*this, data, bytes);
}
absl::StatusOr<std::unique_ptr<kernels::Stream>> DeferredBackend::MakeStream(
    kernels::StreamPurpose) {
  const MutexLock lock(&mutex_);
  side_.push_back(std::make_unique<Queue>());
  return std::make_unique<DeferredStream>(side_.back().get());
}
absl::StatusOr<std::unique_ptr<kernels::Event>> DeferredBackend::MakeEvent() {
  return std::make_unique<DeferredEvent>(*this);
}

void DeferredBackend::StallSideStreams(bool stall) {
  const MutexLock lock(&mutex_);
  stalls_ = stall;
  ++num_changes_;
}
void DeferredBackend::FailEvents(const absl::Status& status) {
  const MutexLock lock(&mutex_);
  event_error_ = status;
}

void DeferredBackend::CopyToDevice(const void* host, void* device, int64_t bytes, StreamView s) {
  if (bytes == 0) return;
  const auto* from = static_cast<const char*>(host);
  Run(s, [copy = std::vector<char>(from, from + bytes), to = memory_->Open(device, bytes)] {
    std::memcpy(to, copy.data(), copy.size());
  });
}
void DeferredBackend::CopyFromStaging(const void* host, void* device, int64_t bytes, StreamView s) {
  if (bytes == 0) return;
  Run(s, [=, to = memory_->Open(device, bytes)] { std::memcpy(to, host, bytes); });
}
void DeferredBackend::CopyToHost(const void* device, void* host, int64_t bytes, StreamView s) {
  if (bytes == 0) return;
  Run(s, [=, from = memory_->Open(device, bytes)] { std::memcpy(host, from, bytes); });
}

void DeferredBackend::Enqueue(const kernels::Operation& operation, StreamView stream) {
  std::visit(
      [&](const auto* args) {
        Run(stream, [this, open = OpenArguments(*memory_, *args)] {
          ForwardingBackend::Enqueue(&open, {});
        });
      },
      operation);
}

}  // namespace anyorder::testing
