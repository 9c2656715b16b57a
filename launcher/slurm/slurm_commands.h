// What the launcher asks Slurm, through its commands: their output is documented and the same on
// every site, the library's is not.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/train/run/ledger.h"

namespace anyorder::launcher {

struct SlurmJob {
  int64_t id = 0;
  std::string state;       // PENDING, RUNNING, COMPLETED, ...
  std::string reason;      // why it waits or ended; "" for None
  std::string partition;   // several with commas while it waits
  std::string nodes;       // as Slurm writes them, "n[1-4]"; "" while it waits
  std::string dependency;  // "" for none
  std::string exit_code;   // "0:15": status and signal; of jobs that ended
  int64_t num_nodes = -1;
  int64_t restarts = -1;
  std::optional<absl::Duration> run_time;
  std::optional<absl::Duration> time_left;  // while it runs, with a time limit
  std::optional<absl::Time> start;          // while it waits: when Slurm expects to start it

  bool IsQueued() const;
  // Has an allocation, also while it ends.
  bool IsRunning() const;
  // Certainly runs no more as its start number `restart`: it ended, or was requeued since. False
  // for COMPLETING: its processes may be writing their last checkpoint.
  bool HasEnded(int64_t restart) const;
};

// One line of `scontrol -o show job`. DataLoss if it describes no job.
absl::StatusOr<SlurmJob> ParseSlurmJob(absl::string_view line);

// The seconds of a time as Slurm writes and reads it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; 0 for
// UNLIMITED, INFINITE and 0. InvalidArgument otherwise.
absl::StatusOr<int64_t> ParseTimeLimit(absl::string_view text);

// Waits for a command and takes what it writes to stdout and stderr. Unavailable with its last line
// if it fails; DeadlineExceeded, after ending it, if it takes longer than `limit`.
absl::Status RunCommand(const std::vector<std::string>& arguments, absl::Duration limit,
                        std::string* output);

// The nodes that a job holds now: those it was given without those that failed (sbatch --no-kill).
absl::StatusOr<std::vector<std::string>> NodesOfJob(const std::string& job);
// The nodes among these that Slurm expects to run something, in the same order.
absl::StatusOr<std::vector<std::string>> UsableNodes(const std::vector<std::string>& nodes);
// "n1 idle": whether a node in this state (sinfo %T) can run a step.
bool StateIsUsable(absl::string_view state);

struct JobStep {
  std::string id;  // "123.4"
  std::string name;
};
absl::StatusOr<std::vector<JobStep>> StepsOfJob(const std::string& job);
absl::Status SignalStep(const std::string& step, const std::string& signal);

// Whether the job of a lease (ckpt/lease.h) certainly runs no more: it ended, or was requeued
// since. False where Slurm does not answer, and for a job of another cluster. `this_job` in the
// same form: what runs now.
bool JobHasEnded(const std::string& job, const std::string& this_job);

// What starts the ranks in a job: srun or mpirun, found by looking.
struct MpiChoice {
  std::string plugin;  // of srun --mpi=; "": mpirun starts the ranks
  std::string reason;  // for the log
};

// `wanted`: auto, srun or mpirun. `srun_list`: what `srun --mpi=list` prints. `has_mpirun`: there
// is one in PATH. InvalidArgument, with what to ask the administrator for, if there is no backend.
absl::StatusOr<MpiChoice> ChooseMpi(const std::string& wanted, absl::string_view srun_list,
                                    bool has_mpirun);

struct SlurmView {
  std::vector<SlurmJob> jobs;      // newest first
  std::vector<int64_t> forgotten;  // jobs of the run that Slurm no longer knows
  std::string problem;             // why nothing more is known; "" if nothing failed
};

// Numbers of the jobs that ran or will run `run_dir`, newest first: of start records, and of the
// files in run_dir/slurm that are named after a job (job-123.log). Empty for a run that was never
// under Slurm.
std::vector<int64_t> SlurmJobsOf(const std::string& run_dir,
                                 const std::vector<LedgerRecord>& ledger);

// Asks about the newest of `ids`, and about older ones until one is found that does not wait. All
// answers together take at most `patience`.
SlurmView AskSlurm(const std::vector<int64_t>& ids, absl::Duration patience);

}  // namespace anyorder::launcher
