// What Slurm says about the jobs of a run, for `anyorder status`: one `scontrol -o show job` each,
// and never more than a few seconds of waiting, because a controller that is down keeps its clients
// for minutes.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
};

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

// One line of `scontrol -o show job`. DataLoss if it describes no job.
absl::StatusOr<SlurmJob> ParseSlurmJob(absl::string_view line);

}  // namespace anyorder::launcher
