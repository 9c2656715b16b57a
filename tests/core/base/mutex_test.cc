#include "core/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"

namespace anyorder {
namespace {

// A number that threads raise and wait for.
class Counter {
 public:
  void Add(int amount) {
    const MutexLock lock(&mutex_);
    value_ += amount;
  }
  bool AwaitAtLeast(int value, absl::Duration limit = absl::InfiniteDuration()) {
    const MutexLock lock(&mutex_);
    return IsReached(value, limit);
  }
  // Tells others that it waits, and waits for them.
  bool AddAndAwait(int amount, int value) {
    const MutexLock lock(&mutex_);
    value_ += amount;
    return IsReached(value, absl::Seconds(10));
  }

 private:
  bool IsReached(int value, absl::Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return mutex_.AwaitWithTimeout(
        [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return value_ >= value; }, limit);
  }

  Mutex mutex_;
  int value_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, EachWaiterGoesOnWhenItsOwnConditionIsTrue) {
  Counter counter, done;
  std::thread late([&] { done.Add(counter.AwaitAtLeast(2) ? 10 : 0); });
  std::thread early([&] { done.Add(counter.AwaitAtLeast(1) ? 1 : 0); });
  counter.Add(1);
  early.join();
  EXPECT_TRUE(done.AwaitAtLeast(1));
  EXPECT_FALSE(done.AwaitAtLeast(2, absl::Milliseconds(20)));
  counter.Add(1);
  late.join();
  EXPECT_TRUE(done.AwaitAtLeast(11));
}

TEST(MutexTest, OneThatWaitsFirstLetsOthersSeeWhatItDid) {
  Counter counter;
  std::thread other([&] {
    EXPECT_TRUE(counter.AddAndAwait(1, 2));
    counter.Add(1);
  });
  EXPECT_TRUE(counter.AwaitAtLeast(1));  // from here on the other one waits
  EXPECT_TRUE(counter.AddAndAwait(1, 3));
  other.join();
}

TEST(MutexTest, AWaitEndsAtItsLimit) {
  Counter counter;
  const absl::Time start = MonotonicNow();
  EXPECT_FALSE(counter.AwaitAtLeast(1, absl::Milliseconds(30)));
  EXPECT_GE(MonotonicNow() - start, absl::Milliseconds(30));
  EXPECT_FALSE(counter.AwaitAtLeast(1, absl::ZeroDuration()));
  counter.Add(1);  // no waiter is left in the list
  EXPECT_TRUE(counter.AwaitAtLeast(1, absl::ZeroDuration()));
}

TEST(MutexTest, TryLockTakesOnlyAFreeLock) {
  Mutex mutex;
  bool is_free = true;
  const auto try_it = [&] {
    is_free = false;
    if (!mutex.TryLock()) return;
    is_free = true;
    mutex.Unlock();
  };
  {
    const MutexLock lock(&mutex);
    std::thread(try_it).join();
    EXPECT_FALSE(is_free);
  }
  std::thread(try_it).join();
  EXPECT_TRUE(is_free);
}

}  // namespace
}  // namespace anyorder
