#include "launcher/process/captured_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

#include "core/base/status.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr absl::Duration kEndLimit = absl::Seconds(5);

}  // namespace

absl::StatusOr<CapturedOutput> RunCaptured(const std::vector<std::string>& arguments,
                                           absl::Time deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe to", arguments[0]);
  SpawnOptions spawn;
  spawn.arguments = arguments;
  spawn.output_fd = ends[1];
  spawn.own_session = true;
  spawn.die_with_launcher = true;
  spawn.death_signal = SIGTERM;
  absl::StatusOr<ChildProcess> child = ChildProcess::Spawn(spawn);
  ::close(ends[1]);
  CapturedOutput output;
  bool is_open = child.ok();
  while (is_open && absl::Now() < deadline) {
    pollfd readable = {ends[0], POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now()) + 1;
    if (::poll(&readable, 1, static_cast<int>(std::min<int64_t>(left_ms, 1000))) <= 0) continue;
    char block[1 << 12];
    const ssize_t got = ::read(ends[0], block, sizeof block);
    is_open = got > 0;
    if (is_open && output.text.size() < kMaxOutputBytes)
      output.text.append(block, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  ANYORDER_RETURN_IF_ERROR(child.status());
  // It closed its output and is about to end, or it is stuck.
  output.is_late = is_open;
  for (bool is_told = false; !child->Poll(); absl::SleepFor(absl::Milliseconds(1))) {
    if (absl::Now() > deadline + kEndLimit) child->Signal(SIGKILL);
    if (absl::Now() > deadline && !is_told) {
      child->Signal(SIGTERM);
      output.is_late = is_told = true;
    }
  }
  output.exit_status = *child->Poll();
  return output;
}

bool HasProgram(const std::string& name) {
  const char* path = ::getenv("PATH");
  if (path == nullptr) return false;
  for (const absl::string_view directory : absl::StrSplit(path, ":")) {
    const std::string file = absl::StrCat(directory.empty() ? "." : directory, "/", name);
    struct stat info {};
    if (::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::access(file.c_str(), X_OK) == 0)
      return true;
  }
  return false;
}

}  // namespace anyorder::launcher
