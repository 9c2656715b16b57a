// The command line of `anyorder status`, and --watch: the status again and again until the run is
// done.

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/base/terminal.h"
#include "launcher/inspect/status_report.h"
#include "launcher/process/command_line.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

// Whether a signal of `signals`, a signalfd, came within `interval`. It is taken, or it would end
// us once it is let through.
bool WasInterrupted(int signals, absl::Duration interval) {
  pollfd waiting = {signals, POLLIN, 0};
  const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(interval), 1, 1 << 30);
  if (::poll(&waiting, 1, static_cast<int>(ms)) <= 0) return false;
  signalfd_siginfo taken;
  return ::read(signals, &taken, sizeof taken) == sizeof taken;
}

}  // namespace

std::string Redraw(absl::string_view screen, int64_t rows, int64_t columns, int64_t lines_before,
                   int64_t* lines) {
  std::vector<absl::string_view> all = absl::StrSplit(screen, '\n');
  if (!all.empty() && all.back().empty()) all.pop_back();
  // The cursor rests in the line below.
  *lines = std::min<int64_t>(std::ssize(all), std::max<int64_t>(rows - 1, 1));
  std::string bytes;
  if (lines_before > 0) absl::StrAppend(&bytes, "\r\x1b[", lines_before, "A");
  for (int64_t i = 0; i < *lines; ++i)
    absl::StrAppend(&bytes, FittingPrefix(all[static_cast<size_t>(i)], columns), "\x1b[K\n");
  return bytes + "\x1b[J";
}

absl::Status WatchStatus(const std::string& run_dir, bool json, absl::Duration interval) {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  sigset_t before;
  // Blocked, so that a drawing is never left half done.
  ::sigprocmask(SIG_BLOCK, &ending, &before);
  const int signals = ::signalfd(-1, &ending, SFD_CLOEXEC);
  const absl::Cleanup restore = [&before, signals] {
    ::close(signals);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
  };
  if (signals < 0) return ErrnoStatus("signalfd for", run_dir);
  const bool on_terminal = !json && TakesEscapes(STDOUT_FILENO);
  StatusCollector collector(run_dir);
  int64_t lines = 0;
  for (;;) {
    ASSIGN_OR_RETURN(const StatusFacts facts, collector.Collect());
    if (on_terminal) {
      const winsize size = TerminalSize();
      std::fputs(Redraw(StatusScreen(facts), size.ws_row, size.ws_col, lines, &lines).c_str(),
                 stdout);
    } else {
      std::puts(json ? StatusJsonLine(facts).c_str() : StatusLine(facts).c_str());
    }
    // The reader may be gone (a pipe to head).
    if (std::fflush(stdout) != 0) return ErrnoStatus("write to", "standard output");
    const bool is_over =
        facts.is_finished() || facts.state == "diverged" || facts.state == "failed";
    if (is_over || WasInterrupted(signals, interval)) return absl::OkStatus();
  }
}

Subcommand DeclareStatus(CLI::App& front) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = AddCommand(front, "status", "Print the state and progress of a run.",
                                 {"anyorder status runs/a", "anyorder status runs/a --watch 5"});
  AddRunDir(command, options->run_dir, "run directory");
  command->add_flag("--json", options->json, "print one JSON object; with --watch one per line");
  AddNumber(command, "--watch", options->watch_seconds,
            "refresh every X seconds (default: 2) until the run finished, failed or diverged",
            Between(0.1, 86400))
      ->expected(0, 1)
      ->default_str("2");
  return {command, [options] { return Report(PrintStatus(*options)); }};
}

}  // namespace anyorder::launcher
