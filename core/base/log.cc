#include "core/base/log.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/stderr_output.h"
#include "core/base/utc_time.h"

namespace anyorder {
namespace {

std::string& ProcessName() {
  static std::string* const name = new std::string;
  return *name;
}

void WriteLine(absl::string_view level, absl::string_view message) {
  WriteToStderr(absl::StrCat(LogPrefix(), level, message, "\n"));
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
