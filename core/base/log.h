// One line per event on stderr: "2026-01-31T12:00:00.123Z host[rank 3] message".
//
// Thread-safe: each line is one write(2), so lines of several ranks in one file never mix. A line
// that comes again and again is written a few times, and then counted (repeat_limit.h).

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace anyorder {

// Names this process in every later line, e.g. "rank 3" or "ckptd". Call once, before threads
// start.
void SetLogName(absl::string_view name);

void Log(absl::string_view message);
void LogWarning(absl::string_view message);  // the same line with "warning: " before the message

std::string HostName();  // "?" if the machine does not tell

// "2026-01-31T12:00:00.123Z host[name] "
std::string LogPrefix();

}  // namespace anyorder
