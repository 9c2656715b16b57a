#include "core/base/log.h"

#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/bounded_writer.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/base/repeat_limit.h"
#include "core/base/utc_time.h"

namespace anyorder {
namespace {

std::string& ProcessName() {
  static std::string* const name = new std::string;
  return *name;
}

void WriteLine(absl::string_view level, absl::string_view message) {
  static Mutex mutex;
  static auto* const limit ABSL_PT_GUARDED_BY(mutex) = new RepeatLimit;
  std::vector<std::string> lines;
  {
    const MutexLock lock(&mutex);
    lines = limit->Admit(absl::StrCat(level, message), MonotonicNow());
  }
  for (const std::string& line : lines) WriteToStderr(absl::StrCat(LogPrefix(), line, "\n"));
}

}  // namespace

std::string HostName() {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return host;
}

void SetLogName(absl::string_view name) { ProcessName() = std::string(name); }

std::string LogPrefix() {
  static const std::string* const host = new std::string(HostName());
  return absl::StrCat(UtcTimeStamp(), " ", *host, "[", ProcessName(), "] ");
}

void Log(absl::string_view message) { WriteLine("", message); }
void LogWarning(absl::string_view message) { WriteLine("warning: ", message); }

}  // namespace anyorder
