// Keeps one line that comes again and again from drowning a log.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder {

// Has no clock. Not thread-safe.
class RepeatLimit {
 public:
  static constexpr int64_t kTimes = 5;  // that one line is written within the window
  static constexpr absl::Duration kWindow = absl::Seconds(10);

  // What to write now for a `line` that is to be logged: first, how often other lines, or this one,
  // were left out in windows that are over; then `line`, unless it has come too often. Lines that
  // differ are never left out.
  std::vector<std::string> Admit(absl::string_view line, absl::Time now);

 private:
  struct Recent {
    std::string line;
    absl::Time since;
    int64_t times = 1;
  };
  static constexpr size_t kMaxRemembered = 16;

  std::deque<Recent> recent_;  // the oldest first
};

}  // namespace anyorder
