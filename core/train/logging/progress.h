// The live line of a training run: step, loss, tokens a second, time to go.

#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

#include "core/train/run/metrics.h"

namespace anyorder {

class Progress {
 public:
  // `on_terminal`: one line that is redrawn; otherwise a line every few seconds, and at least every
  // `log_every` steps that take longer than that.
  Progress(int64_t first_step, int64_t total_steps, bool on_terminal, int64_t log_every);

  // Writes to stderr when it is time to.
  void Update(const StepMetrics& metrics);
  // Ends a redrawn line, so that other output starts on a fresh one.
  void Finish();

  // "step 120/400  loss 6.1234  5210 tokens/s  ETA 1m20s"
  std::string Line(const StepMetrics& metrics, absl::Duration elapsed) const;

 private:
  const int64_t first_step_;
  const int64_t total_steps_;
  const bool on_terminal_;
  const int64_t log_every_;
  const absl::Time started_;
  absl::Time last_shown_ = absl::InfinitePast();
  bool line_is_open_ = false;
};

}  // namespace anyorder
