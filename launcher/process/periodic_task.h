// Something that is done again and again in the background.

#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/time.h"

namespace anyorder::launcher {

// Calls `action` after each `interval`, in a thread of its own, for as long as it lives.
class PeriodicTask {
 public:
  PeriodicTask(absl::Duration interval, std::function<void()> action)
      : thread_([this, interval, action = std::move(action)] {
          std::unique_lock<std::mutex> lock(mutex_);
          while (!changed_.wait_for(lock, absl::ToChronoMilliseconds(interval),
                                    [this] { return stop_; })) {
            lock.unlock();
            action();
            lock.lock();
          }
        }) {}
  ~PeriodicTask() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  PeriodicTask(const PeriodicTask&) = delete;
  PeriodicTask& operator=(const PeriodicTask&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
