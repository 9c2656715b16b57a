#include "launcher/process/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/bounded_writer.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

// Takes out of `held` what may be passed on: all but notices that begin so, and what may become the
// beginning of one. A notice ends with the rule that it begins with.
std::string TakeAllButNotices(absl::string_view begins, std::string& held) {
  if (begins.empty()) return std::exchange(held, "");
  const std::string rule = std::string(74, '-') + "\n", notice = absl::StrCat(rule, begins);
  std::string taken;
  for (size_t begin; (begin = held.find(rule)) != std::string::npos;) {
    taken.append(held, 0, begin);
    held.erase(0, begin);
    const size_t known = std::min(held.size(), notice.size());
    if (held.compare(0, known, notice, 0, known) == 0) {
      const size_t end = known < notice.size() ? std::string::npos : held.find(rule, rule.size());
      if (end == std::string::npos) return taken;
      held.erase(0, end + rule.size());
    } else {
      taken.append(held, 0, rule.size());
      held.erase(0, rule.size());
    }
  }
  const size_t dashes = held.find_last_not_of('-') + 1;
  taken.append(held, 0, dashes);
  held.erase(0, dashes);
  return taken;
}

}  // namespace

absl::StatusOr<OutputRelay> OutputRelay::Open(const std::string& log_path, bool is_shown) {
  ASSIGN_OR_RETURN(AppendFile log, AppendFile::Open(log_path));
  return OutputRelay(std::move(log), is_shown);
}

OutputRelay::OutputRelay(AppendFile log, bool is_shown) : is_shown_(is_shown) {
  const auto file = std::make_shared<AppendFile>(std::move(log));
  log_ = std::make_unique<BoundedWriter>(
      [file](absl::string_view bytes) { file->Append(bytes).IgnoreError(); });
}

absl::StatusOr<ChildProcess> OutputRelay::Start(SpawnOptions options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe", "output of the ranks");
  read_end_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);  // only the child keeps it, so that the pipe ends with it
  ::fcntl(read_end_.get(), F_SETFL, O_NONBLOCK);
  options.output_fd = write_end.get();
  options.own_session = true;
  return ChildProcess::Spawn(options);
}

void OutputRelay::Pump(int timeout_ms) {
  pollfd wanted{read_end_.get(), POLLIN, 0};
  if (::poll(&wanted, read_end_.valid() ? 1 : 0, timeout_ms) <= 0) return;
  char bytes[4096];
  ssize_t got = 0;
  while ((got = ::read(read_end_.get(), bytes, sizeof bytes)) > 0) {
    held_.append(bytes, static_cast<size_t>(got));
    // prterun ends some of its errors with one, for which grep takes the log for binary.
    std::erase(held_, '\0');
    Take("", TakeAllButNotices(dropped_notice_, held_));
  }
  if (got != 0) return;
  Take("", std::exchange(held_, ""));
  read_end_ = UniqueFd();  // every writer is gone
}

void OutputRelay::Take(const std::string& source, absl::string_view bytes) {
  if (is_shown_) WriteToStderr(bytes);
  std::string& partial = partial_[source];
  absl::StrAppend(&partial, bytes);
  size_t begin = 0;
  for (size_t end = partial.find('\n'); end != std::string::npos; end = partial.find('\n', begin)) {
    TakeLine(absl::string_view(partial).substr(begin, end - begin));
    begin = end + 1;
  }
  partial.erase(0, begin);
}

void OutputRelay::TakeLine(absl::string_view line) {
  // Of a line that was redrawn, the last state is what stayed on the screen.
  const size_t redrawn = line.rfind('\r');
  if (redrawn != absl::string_view::npos) line.remove_prefix(redrawn + 1);
  log_->Write(absl::StrCat(line, "\n"));
  if (watcher_) watcher_(line);
  if (absl::StartsWith(line, "anyorder-train: ") || absl::StartsWith(line, "anyorder-ckptd: ") ||
      absl::StrContains(line, "CHECK")) {
    last_error_ = std::string(line);
  }
}

}  // namespace anyorder::launcher
