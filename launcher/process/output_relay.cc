#include "launcher/process/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/stderr_output.h"

namespace anyorder::launcher {
namespace {

constexpr char kSrunError[] = "srun: error: ";
constexpr char kSrunExit[] = ": Exited with exit code ";

}  // namespace

absl::StatusOr<OutputRelay> OutputRelay::Open(const std::string& log_path, bool is_shown) {
  ANYORDER_ASSIGN_OR_RETURN(AppendFile log, AppendFile::Open(log_path));
  return OutputRelay(std::move(log), is_shown);
}

OutputRelay::OutputRelay(AppendFile log, bool is_shown) : is_shown_(is_shown) {
  const auto file = std::make_shared<AppendFile>(std::move(log));
  log_ = std::make_unique<BoundedWriter>(
      [file](absl::string_view bytes) { file->Append(bytes).IgnoreError(); });
}

absl::StatusOr<ChildProcess> OutputRelay::Start(SpawnOptions options) {
  srun_error_ = absl::InfiniteFuture();
  srun_exit_status_.reset();
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
  while ((got = ::read(read_end_.get(), bytes, sizeof bytes)) > 0)
    Take("", absl::string_view(bytes, static_cast<size_t>(got)));
  if (got == 0) read_end_ = UniqueFd();  // every writer is gone
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
  // "srun: error: n2: task 3: Exited with exit code 74", "srun: error: n2: task 3: Killed", "srun:
  // error: Node failure on n2"
  if (absl::StartsWith(line, kSrunError) && srun_error_ == absl::InfiniteFuture()) {
    srun_error_ = MonotonicNow();
    const std::vector<absl::string_view> parts = absl::StrSplit(line, kSrunExit);
    int status = 0;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &status)) srun_exit_status_ = status;
  }
  if (absl::StartsWith(line, "anyorder-train: ") || absl::StartsWith(line, "anyorder-ckptd: ") ||
      absl::StrContains(line, "CHECK")) {
    last_error_ = std::string(line);
  }
}

}  // namespace anyorder::launcher
