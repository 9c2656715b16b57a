// Keeps one line that comes again and again from drowning a log.

#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
  std::vector<std::string> Admit(absl::string_view line, absl::Time now) {
    std::vector<std::string> written;
    while (!recent_.empty() &&
           (now - recent_.front().since > kWindow || recent_.size() >= kMaxRemembered)) {
      const Recent& oldest = recent_.front();
      if (oldest.times > kTimes)
        written.push_back(
            absl::StrCat("left out ", oldest.times - kTimes, " times: ", oldest.line));
      recent_.pop_front();
    }
    const auto found = std::find_if(recent_.begin(), recent_.end(),
                                    [line](const Recent& one) { return one.line == line; });
    if (found == recent_.end()) {
      recent_.push_back({std::string(line), now});
    } else if (++found->times > kTimes) {
      return written;
    }
    written.emplace_back(line);
    return written;
  }

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
