#include "core/base/mutex.h"

#include <algorithm>
#include <condition_variable>

namespace anyorder {

struct Mutex::Waiter {
  absl::FunctionRef<bool()> is_true;
  Waiter* next;
  std::condition_variable woken = {};
};

void Mutex::WakeWaiters() {
  for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next)
    if (waiter->is_true()) waiter->woken.notify_one();
}

bool Mutex::AwaitWithTimeout(absl::FunctionRef<bool()> is_true, absl::Duration limit) {
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

}  // namespace anyorder
