// What the launcher asks Slurm, through its commands: their output is documented and the same on
// every site, the library's is not.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::launcher {

// Waits for a command and takes what it writes to stdout and stderr. Unavailable with its last line
// if it fails; DeadlineExceeded, after ending it, if it takes longer than `limit`.
absl::Status RunCommand(const std::vector<std::string>& arguments, absl::Duration limit,
                        std::string* output);

// The nodes that a job holds now: those it was given without those that failed (sbatch --no-kill).
absl::StatusOr<std::vector<std::string>> NodesOfJob(const std::string& job);
// Of these nodes, those that Slurm expects to run something, in the same order.
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

}  // namespace anyorder::launcher
