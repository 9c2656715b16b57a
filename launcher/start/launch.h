// `anyorder launch`: runs a training job on this machine, or on the nodes of a Slurm job, and keeps
// it running.
//
// One start of the ranks is an *attempt*. Each gets its own checkpoint service, which outlives
// the ranks and the launcher; the ranks die with the launcher. After a crash the next attempt
// resumes from the newest committed checkpoint.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "core/train/state/resume.h"
#include "launcher/start/start_request.h"

namespace anyorder::launcher {

struct LaunchOptions : StartRequest {  // its `ranks`: of --backend local
  std::string backend = "local";       // or slurm: as steps of the job that this runs in
  int64_t ranks_per_node = 0;          // of --backend slurm; 0: as the job's tasks
  std::string mpi = "auto";            // of --backend slurm: or srun, mpirun
  ResumeMode resume = ResumeMode::kAuto;
  bool progress_on_terminal = false;
};

// The exit status of the run: 0 finished, 75 stopped by a signal after a checkpoint, or that of
// ranks that failed in a way that starting again cannot mend (64, 65). Errors: InvalidArgument and
// FailedPrecondition before anything is written; AlreadyExists naming the owner if the run
// directory is in use; Aborted after three starts without a new checkpoint.
absl::StatusOr<int> Launch(const LaunchOptions& options);

}  // namespace anyorder::launcher
