// `anyorder prep --slurm N`: a preparation as Slurm jobs. One plans, an array of N tasks encodes
// slices, each on its node, one merges them into the dataset (data/prep/prep.h); training may then
// begin with `anyorder submit --after` the merge.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace anyorder::launcher {

struct PrepJob {
  std::vector<std::string> words;  // anyorder-prep's own, without what is below
  std::string output;              // directory of the dataset
  uint64_t tasks = 1;
  bool has_workers = false;         // `words` say how many workers a task has; else one a core
  std::vector<std::string> sbatch;  // words after --
  bool dry_run = false;
};

// The words of `argv` without --slurm, --dry-run and what comes after `--`.
std::vector<std::string> WordsForTasks(int argc, char** argv);

// Writes OUTPUT.slurm/prep.sbatch, submits the three jobs, prints the number of the merge on stdout
// and the rest on stderr. With `dry_run` prints the script and the commands, and writes and submits
// nothing. Errors: those of Sbatch; jobs that were accepted before another was refused are
// cancelled.
absl::Status SubmitPrep(const PrepJob& job);

}  // namespace anyorder::launcher
