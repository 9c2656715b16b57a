// A thread that does one piece of work after the other.

#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/time/time.h"

#include "core/base/mutex.h"

namespace anyorder::ckpt {

// Thread-safe.
template <typename Item>
class WorkQueue {
 public:
  explicit WorkQueue(std::function<void(Item)> work)
      : work_(std::move(work)), thread_([this] { Loop(); }) {}
  // Finishes what is queued.
  ~WorkQueue() {
    {
      const MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  void Enqueue(Item item) {
    const MutexLock lock(&mutex_);
    queue_.push_back(std::move(item));
  }

  // Queued or being done.
  int num_pending() const {
    const MutexLock lock(&mutex_);
    return static_cast<int>(queue_.size()) + (is_busy_ ? 1 : 0);
  }

  // Drops the queue, and ends what is being done as soon as it asks.
  void Cancel() {
    const MutexLock lock(&mutex_);
    cancelled_ = true;
    queue_.clear();
  }

  // For the work itself.
  bool is_cancelled() const {
    const MutexLock lock(&mutex_);
    return cancelled_;
  }
  // False, at once, when it is cancelled.
  bool Sleep(absl::Duration time) {
    const auto is_cancelled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return cancelled_; };
    const MutexLock lock(&mutex_);
    return !mutex_.AwaitWithTimeout(is_cancelled, time);
  }

 private:
  void Loop() {
    const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !queue_.empty();
    };
    const MutexLock lock(&mutex_);
    while (true) {
      mutex_.Await(has_work);
      if (queue_.empty()) return;
      Item item = std::move(queue_.front());
      queue_.pop_front();
      is_busy_ = true;
      mutex_.Unlock();
      work_(std::move(item));
      mutex_.Lock();
      is_busy_ = false;
    }
  }

  const std::function<void(Item)> work_;
  mutable Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when everything above is ready
};

}  // namespace anyorder::ckpt
