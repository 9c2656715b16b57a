// A thread that does one piece of work after the other.

#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/time.h"

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
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Enqueue(Item item) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(std::move(item));
    }
    changed_.notify_all();
  }

  // Queued or being done.
  int num_pending() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(queue_.size()) + (is_busy_ ? 1 : 0);
  }

  // Drops the queue, and ends what is being done as soon as it asks.
  void Cancel() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      cancelled_ = true;
      queue_.clear();
    }
    changed_.notify_all();
  }

  // For the work itself.
  bool is_cancelled() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return cancelled_;
  }
  // False, at once, when it is cancelled.
  bool Sleep(absl::Duration time) {
    std::unique_lock<std::mutex> lock(mutex_);
    return !changed_.wait_for(lock, absl::ToChronoMilliseconds(time),
                              [this] { return cancelled_; });
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Item item = std::move(queue_.front());
      queue_.pop_front();
      is_busy_ = true;
      lock.unlock();
      work_(std::move(item));
      lock.lock();
      is_busy_ = false;
    }
  }

  const std::function<void(Item)> work_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool is_busy_ = false;
  bool stopping_ = false;
  bool cancelled_ = false;
  std::thread thread_;  // last: starts when everything above is ready
};

}  // namespace anyorder::ckpt
