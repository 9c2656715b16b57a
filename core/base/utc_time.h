// How every record of a run writes a time.

#pragma once

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace anyorder {

// "2026-01-31T12:00:00.123Z"
inline std::string UtcTimeStamp(absl::Time time = absl::Now()) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

}  // namespace anyorder
