// A lock whose rules clang checks: what is ABSL_GUARDED_BY it, and which functions need it
// (`lint.thread_safety`).
//
// It has the names of absl::Mutex, but keeps its time limits by the monotonic clock. Abseil of
// Debian 12 (20220623) waits by the wall clock: set back by a minute, that would stop a rank's
// ticks for a minute, and its run with them.

#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"  // IWYU pragma: export
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace anyorder {

class ABSL_LOCKABLE Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    WakeWaiters();
    mutex_.unlock();
  }

  // Releases the lock until `is_true`, and holds it again when that returns true. It is called with
  // the lock, by this thread and by those that release it: nobody has to notify.
  void Await(absl::FunctionRef<bool()> is_true) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    while (!AwaitWithTimeout(is_true, absl::InfiniteDuration())) {
    }
  }
  // Returns after `limit`, or a day, at the latest. Whether `is_true` then.
  bool AwaitWithTimeout(absl::FunctionRef<bool()> is_true, absl::Duration limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    if (is_true()) return true;
    WakeWaiters();
    Waiter waiter{is_true, waiters_};
    waiters_ = &waiter;
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    // The clock cannot count to the end of an infinite wait.
    const auto most = absl::ToChronoNanoseconds(std::min(limit, absl::Hours(24)));
    const bool is_met = waiter.woken.wait_for(lock, most, is_true);
    lock.release();
    Waiter** place = &waiters_;
    while (*place != &waiter) place = &(*place)->next;
    *place = waiter.next;
    return is_met;
  }

 private:
  struct Waiter {
    absl::FunctionRef<bool()> is_true;
    Waiter* next;
    std::condition_variable woken = {};
  };
  void WakeWaiters() {
    for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next)
      if (waiter->is_true()) waiter->woken.notify_one();
  }

  std::mutex mutex_;
  Waiter* waiters_ = nullptr;  // with mutex_; a list, on the stacks of their threads
};

// Holds the lock from here to the end of the block. In between, Unlock and Lock of the mutex itself
// may give it away for a while.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace anyorder
