// How far a command that computes batch by batch has come, and its end by a signal.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/base/terminal.h"
#include "launcher/process/periodic_task.h"

namespace anyorder::launcher {

// On a terminal one line on stderr that is redrawn, elsewhere one line at the begin, every 10 s and
// at the end. SIGINT, SIGTERM and SIGUSR1 end the work after a batch; a second SIGINT or SIGTERM
// ends the process at once with 75. Make it before any other thread is started.
class BatchProgress {
 public:
  // `what` is counted, "batch" for instance. `is_shown`: signals are obeyed even if it is not.
  explicit BatchProgress(std::string what, bool is_shown = true);
  BatchProgress(const BatchProgress&) = delete;
  BatchProgress& operator=(const BatchProgress&) = delete;

  // "batch 3/60  WORDS  ETA 1m20s". False if a signal came: the work should end here. Call it with
  // 0 before the first.
  bool GoesOn(int64_t done, int64_t total, absl::string_view words);

 private:
  void Show(const std::string& line, bool is_last);

  const std::string what_;
  const bool is_shown_;
  const bool on_terminal_;
  const PeriodicTask at_second_signal_;
  absl::Time started_ = absl::InfinitePast();
  absl::Time shown_ = absl::InfinitePast();
  RedrawnLine line_;
};

}  // namespace anyorder::launcher
