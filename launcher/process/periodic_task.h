// Something that is done again and again in the background.

#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "absl/time/time.h"

#include "core/base/mutex.h"

namespace anyorder::launcher {

// Calls `action` after each `interval`, in a thread of its own, for as long as it lives.
class PeriodicTask {
 public:
  PeriodicTask(absl::Duration interval, std::function<void()> action)
      : thread_([this, interval, action = std::move(action)] {
          const auto has_ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; };
          const MutexLock lock(&mutex_);
          while (!mutex_.AwaitWithTimeout(has_ended, interval)) {
            mutex_.Unlock();
            action();
            mutex_.Lock();
          }
        }) {}
  ~PeriodicTask() {
    {
      const MutexLock lock(&mutex_);
      stop_ = true;
    }
    thread_.join();
  }
  PeriodicTask(const PeriodicTask&) = delete;
  PeriodicTask& operator=(const PeriodicTask&) = delete;

 private:
  Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
