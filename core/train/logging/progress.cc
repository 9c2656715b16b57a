#include "core/train/logging/progress.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

#include "core/base/log.h"

namespace anyorder {
namespace {

constexpr absl::Duration kRedraw = absl::Milliseconds(200);
constexpr absl::Duration kBetweenLines = absl::Seconds(3);

}  // namespace

Progress::Progress(int64_t first_step, int64_t total_steps, bool on_terminal, int64_t log_every)
    : first_step_(first_step),
      total_steps_(total_steps),
      on_terminal_(on_terminal),
      log_every_(log_every),
      started_(absl::Now()) {}

std::string Progress::Line(const StepMetrics& metrics, absl::Duration elapsed) const {
  const int64_t done = metrics.step - first_step_;
  const absl::Duration per_step = done > 0 ? elapsed / done : absl::ZeroDuration();
  const absl::Duration left =
      absl::Trunc(per_step * (total_steps_ - metrics.step), absl::Seconds(1));
  return absl::StrFormat("step %d/%d  loss %.4f  %.0f tokens/s  ETA %s", metrics.step, total_steps_,
                         metrics.loss, metrics.tokens_per_second, absl::FormatDuration(left));
}

void Progress::Update(const StepMetrics& metrics) {
  const absl::Time now = absl::Now();
  const bool is_last = metrics.step == total_steps_;
  const std::string line = Line(metrics, now - started_);
  if (on_terminal_) {
    if (!is_last && now - last_shown_ < kRedraw) return;
    // Erases what a longer line left behind.
    absl::FPrintF(stderr, "\r%s\033[K", line);
    line_is_open_ = true;
  } else {
    const bool due =
        now - last_shown_ >= kBetweenLines && (metrics.step - first_step_) % log_every_ == 0;
    const bool overdue = now - last_shown_ >= 4 * kBetweenLines;
    if (!is_last && !due && !overdue) return;
    Log(line);
  }
  last_shown_ = now;
}

void Progress::Finish() {
  if (line_is_open_) std::fputc('\n', stderr);
  line_is_open_ = false;
}

}  // namespace anyorder
