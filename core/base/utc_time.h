// How every record of a run writes a time.

#pragma once

#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace anyorder {

// "2026-01-31T12:00:00.123Z"
inline std::string UtcTimeStamp(absl::Time time = absl::Now()) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

inline std::optional<absl::Time> ParseUtcTime(const std::string& text) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, nullptr)) return std::nullopt;
  return time;
}

}  // namespace anyorder
