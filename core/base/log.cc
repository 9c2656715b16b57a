#include "core/base/log.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/utc_time.h"

namespace anyorder {
namespace {

std::string& ProcessName() {
  static std::string* const name = new std::string;
  return *name;
}

void WriteLine(absl::string_view level, absl::string_view message) {
  const std::string line = absl::StrCat(LogPrefix(), level, message, "\n");
  // A failed write to stderr has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
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
