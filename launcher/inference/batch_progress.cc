#include "launcher/inference/batch_progress.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/terminal.h"
#include "core/train/run/stop_signal.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(200);
constexpr absl::Duration kBetweenLines = absl::Seconds(10);

// Before the threads of the caller's other members.
std::string WithStopSignals(std::string what) {
  InstallStopSignals();
  return what;
}

}  // namespace

BatchProgress::BatchProgress(std::string what, bool is_shown)
    : what_(WithStopSignals(std::move(what))),
      is_shown_(is_shown),
      on_terminal_(TakesEscapes(STDERR_FILENO)),
      at_second_signal_(absl::Milliseconds(50), [] {
        if (StopIsUrgent()) ::_exit(kExitRequeue);
      }) {}

bool BatchProgress::GoesOn(int64_t done, int64_t total, absl::string_view words) {
  const absl::Time now = MonotonicNow();
  if (done == 0) started_ = now;
  std::string line = absl::StrCat(what_, " ", done, "/", total);
  if (!words.empty()) absl::StrAppend(&line, "  ", words);
  if (done > 0) {
    const absl::Duration left = (now - started_) * (total - done) / done;
    absl::StrAppend(&line, "  ETA ", absl::FormatDuration(absl::Trunc(left, absl::Seconds(1))));
  }
  const bool goes_on = StopSignal() == 0;
  Show(line, done == total || !goes_on);
  return goes_on;
}

void BatchProgress::Show(const std::string& line, bool is_last) {
  const absl::Time now = MonotonicNow();
  if (!is_shown_) return;
  if (!is_last && now - shown_ < (on_terminal_ ? kRedraw : kBetweenLines)) return;
  shown_ = now;
  if (!on_terminal_) return Log(line);
  line_.Show(line);
  if (is_last) line_.Finish();
}

}  // namespace anyorder::launcher
