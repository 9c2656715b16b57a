// What Slurm says about the jobs of a run, for `anyorder status`: one `scontrol -o show job` each,
// and never more than a few seconds of waiting, because a controller that is down keeps its clients
// for minutes.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "core/train/run/ledger.h"
#include "launcher/process/slurm_job.h"

namespace anyorder::launcher {

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
