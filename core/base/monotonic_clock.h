// The clock for limits, waits and durations. Time stamps that people read: utc_time.h.

#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace anyorder {

// Now, by a clock that nobody sets and that stands still while the machine is suspended. Its times
// mean something only to processes of this boot of this machine: never print or store them.
inline absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// That clock, for waits whose length a test decides.
class Clock {
 public:
  virtual ~Clock() = default;

  static Clock* Monotonic() {  // never null, never deleted
    static Clock clock;
    return &clock;
  }

  virtual absl::Time Now() { return MonotonicNow(); }
  virtual void Sleep(absl::Duration duration) { absl::SleepFor(duration); }
};

}  // namespace anyorder
