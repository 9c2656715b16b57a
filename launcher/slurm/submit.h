// `anyorder submit`: a training run as a Slurm job that comes back into the queue until it is
// finished.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "launcher/start/start_request.h"

namespace anyorder::launcher {

struct SubmitOptions : StartRequest {  // its `ranks` follow from nodes and ranks_per_node
  std::string resume = "auto";
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::optional<int64_t> cpus_per_rank;
  std::optional<int64_t> gpus_per_node;
  std::string time;  // as sbatch has it; "", like the next two: the cluster's default
  std::string partition;
  std::string account;
  // Before the time limit; default: what the ledger's commits say, else 120.
  std::optional<int64_t> signal_seconds;
  std::string after;         // job that comes first
  std::string mpi = "auto";  // or srun, mpirun
  std::string environment;   // file that the job sources; "": RUN-DIR/slurm/environment.sh
  // Status that the site requeues (RequeueExit); default: scontrol requeue.
  std::optional<int64_t> requeue_exit;
  bool dry_run = false;
  std::vector<std::string> sbatch;  // words after --
  std::string command;              // the whole command line, for the script's reader
};

// Prints the job's number on stdout, what was chosen and why on stderr. With `dry_run` prints the
// script and the sbatch command, and writes and submits nothing. Errors: those of ResolveStart and
// Sbatch; AlreadyExists, naming the job, if one of the same run waits or runs; all of them before
// anything is written, except that sbatch may refuse what it was given.
absl::Status Submit(const SubmitOptions& options);

}  // namespace anyorder::launcher
