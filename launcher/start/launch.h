// `anyorder launch`: runs a training job on this machine, or on the nodes of a Slurm job, and keeps
// it running.
//
// One start of the ranks is an *attempt*. Each gets its own checkpoint service, which outlives
// the ranks and the launcher; the ranks die with the launcher. After a crash the next attempt
// goes on from the newest committed checkpoint.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/state/resume.h"

namespace anyorder::launcher {

struct LaunchOptions {
  std::string config;  // file; empty: the run directory's frozen one
  std::string run_dir;
  std::string backend = "local";  // or slurm: as steps of the job that this runs in
  int64_t ranks = 1;              // of --backend local
  int64_t ranks_per_node = 0;     // of --backend slurm; 0: as the job's tasks
  std::string mpi = "auto";       // of --backend slurm: or srun, mpirun
  ResumeMode resume = ResumeMode::kAuto;
  std::vector<std::string> overrides;  // section.key=value
  bool allow_schedule_change = false;  // core/train/state/schedule_change.h
  bool progress_on_terminal = false;
};

// The exit status of the run: 0 finished, 75 stopped by a signal after a checkpoint, or that of
// ranks that failed in a way that starting again cannot mend (64, 65). Errors: InvalidArgument and
// FailedPrecondition before anything is written; AlreadyExists naming the owner if the run
// directory is in use; Aborted after three starts without a new checkpoint.
absl::StatusOr<int> Launch(const LaunchOptions& options);

}  // namespace anyorder::launcher
