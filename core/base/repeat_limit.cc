#include "core/base/repeat_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace anyorder {

std::vector<std::string> RepeatLimit::Admit(absl::string_view line, absl::Time now) {
  std::vector<std::string> written;
  while (!recent_.empty() &&
         (now - recent_.front().since > kWindow || recent_.size() >= kMaxRemembered)) {
    const Recent& oldest = recent_.front();
    if (oldest.times > kTimes)
      written.push_back(absl::StrCat("left out ", oldest.times - kTimes, " times: ", oldest.line));
    recent_.pop_front();
  }
  const auto found = std::find_if(recent_.begin(), recent_.end(),
                                  [line](const Recent& one) { return one.line == line; });
  if (found != recent_.end()) {
    if (++found->times > kTimes) return written;
  } else {
    recent_.push_back({std::string(line), now});
  }
  written.emplace_back(line);
  return written;
}

}  // namespace anyorder
