// How long tests wait.

#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"

namespace anyorder {

// For what must come. Only a test that fails waits to the end, so a busy machine may take long.
inline constexpr absl::Duration kPatience = absl::Minutes(5);

// Whether `condition` came true.
template <typename Condition>
bool Await(const Condition& condition) {
  for (const absl::Time end = MonotonicNow() + kPatience; !condition();) {
    if (MonotonicNow() > end) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace anyorder
