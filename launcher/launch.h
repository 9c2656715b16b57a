// `anyorder launch`: runs a training job on this machine and keeps it running.
//
// One start of the ranks is an *incarnation*. Each gets its own checkpoint service, which outlives the ranks and the launcher;
// the ranks die with the launcher. After a crash the next incarnation goes on from the newest committed checkpoint.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/resume.h"

namespace anyorder::launcher {

struct LaunchOptions {
  std::string config;  // file; empty: the run directory's frozen one
  std::string run_dir;
  int64_t ranks = 1;
  ResumeMode resume = ResumeMode::kAuto;
  std::vector<std::string> overrides;  // section.key=value
  bool allow_schedule_change = false;  // core/train/schedule_change.h
  bool progress_on_terminal = false;
};

// The exit status of the run: 0 finished, 75 stopped by a signal after a checkpoint, or that of ranks that failed in a way
// that starting again cannot mend (64, 65). Errors: InvalidArgument and FailedPrecondition before anything is written;
// AlreadyExists naming the owner if the run directory is in use; Aborted after three starts without a new checkpoint.
absl::StatusOr<int> Launch(const LaunchOptions& options);

}  // namespace anyorder::launcher
