#include "core/base/machine_memory.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The number in a file of a control group; "max" and a missing file are no limit.
int64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t bytes = 0;
  return file >> word && absl::SimpleAtoi(word, &bytes) ? bytes : kNoLimit;
}

// The least limit of `group` ("/a/b") and the groups around it, below `mount`.
int64_t LeastLimit(const std::string& mount, std::string group, const char* file) {
  int64_t least = kNoLimit;
  while (true) {
    least = std::min(least, LimitIn(absl::StrCat(mount, group, "/", file)));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

// Version 2 has one hierarchy ("0::/a/b"), version 1 one that is named after memory.
int64_t ControlGroupLimit(absl::string_view root) {
  const std::string mount = absl::StrCat(root, "/sys/fs/cgroup");
  std::ifstream file(absl::StrCat(root, "/proc/self/cgroup"));
  int64_t least = kNoLimit;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string group(absl::StripSuffix(parts[2], "/"));
    if (parts[1].empty()) least = std::min(least, LeastLimit(mount, group, "memory.max"));
    if (absl::StrContains(absl::StrCat(",", parts[1], ","), ",memory,")) {
      least = std::min(least,
                       LeastLimit(absl::StrCat(mount, "/memory"), group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

// The bytes of a line of /proc/meminfo; `otherwise` if there is no such number.
int64_t MemoryLine(absl::string_view root, absl::string_view name, int64_t otherwise) {
  std::ifstream file(absl::StrCat(root, "/proc/meminfo"));
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &kib)) return kib << 10;
  }
  return otherwise;
}

}  // namespace

int64_t MachineMemoryBytes(absl::string_view root, bool is_limited) {
  const int64_t memory = MemoryLine(root, "MemTotal:", 0);
  if (memory == 0) return 0;
  const int64_t limit = is_limited ? ControlGroupLimit(root) : kNoLimit;
  return std::min(memory, limit) + MemoryLine(root, "SwapTotal:", 0);
}

int64_t AvailableMemoryBytes() { return MemoryLine("", "MemAvailable:", -1); }

absl::Status RaiseOpenFiles(int64_t needed, absl::string_view who) {
  const auto files = static_cast<rlim_t>(needed);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return ErrnoStatus("getrlimit", "open files");
  if (limit.rlim_cur >= files) return absl::OkStatus();
  if (limit.rlim_max >= files) {
    limit.rlim_cur = files;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  }
  return ResourceExhausted("this process may open ", std::min(limit.rlim_cur, limit.rlim_max),
                           " files, but ", who, " needs ", needed, "; raise the limit (ulimit -n)");
}

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

std::string FormatBytes(double bytes) {
  constexpr double kGiB = 1 << 30;
  return bytes < kGiB ? absl::StrFormat("%.1f MiB", bytes / (1 << 20))
                      : absl::StrFormat("%.1f GiB", bytes / kGiB);
}

}  // namespace anyorder
