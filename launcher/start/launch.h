// `anyorder launch`, and what it asks of the batch system that it may run in.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "launcher/process/command_line.h"
#include "launcher/start/launch_backend.h"

namespace anyorder::launcher {

struct JobOptions {
  std::string run_dir;         // absolute
  int64_t ranks_per_node = 0;  // at most; 0: as many as the job's tasks on its first node
  std::string mpi = "auto";    // or srun, mpirun
  int64_t max_ranks = 1;       // as many microbatches as the run has
};

// What launcher/slurm is to this folder, which does not know it.
struct BatchSystem {
  // Service and ranks as steps of the job that this launcher runs in. InvalidArgument, with the
  // fix, outside of a job or without a way to start ranks. Writes nothing.
  absl::StatusOr<std::unique_ptr<LaunchBackend>> (*make_backend)(const JobOptions& options);
  JobHasEndedQuestion job_has_ended;
};

Subcommand DeclareLaunch(CLI::App& front, const BatchSystem& batch);

}  // namespace anyorder::launcher
