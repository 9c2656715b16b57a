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
#include "core/base/unique_fd.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr absl::Duration kEndLimit = absl::Seconds(5);

// Appends what comes to `text`. False if the deadline comes before the end.
bool ReadToEnd(int fd, absl::Time deadline, std::string* text) {
  while (absl::Now() < deadline) {
    pollfd readable = {fd, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now()) + 1;
    if (::poll(&readable, 1, static_cast<int>(std::min<int64_t>(left_ms, 1000))) <= 0) continue;
    char block[1 << 12];
    const ssize_t got = ::read(fd, block, sizeof block);
    if (got <= 0) return true;
    if (text->size() < kMaxOutputBytes) text->append(block, static_cast<size_t>(got));
  }
  return false;
}

// Waits for its end, and brings it about after the deadline. False if that was necessary.
bool AwaitEnd(ChildProcess& child, absl::Time deadline) {
  bool is_told = false;
  for (; !child.Poll(); absl::SleepFor(absl::Milliseconds(1))) {
    if (absl::Now() > deadline + kEndLimit) child.Signal(SIGKILL);
    if (absl::Now() > deadline && !is_told) child.Signal(SIGTERM);
    is_told = is_told || absl::Now() > deadline;
  }
  return !is_told;
}

}  // namespace

absl::StatusOr<CapturedOutput> RunCaptured(const std::vector<std::string>& arguments,
                                           absl::Time deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe to", arguments[0]);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  SpawnOptions spawn;
  spawn.arguments = arguments;
  spawn.output_fd = write_end.get();
  spawn.own_session = true;
  spawn.die_with_launcher = true;
  spawn.death_signal = SIGTERM;
  ANYORDER_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Spawn(spawn));
  write_end = UniqueFd();
  CapturedOutput output;
  output.is_late = !ReadToEnd(read_end.get(), deadline, &output.text);
  read_end = UniqueFd();
  output.is_late = !AwaitEnd(child, deadline) || output.is_late;
  output.exit_status = *child.Poll();
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
