// What Slurm says about one job: `scontrol -o show job`.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

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

// NotFound if Slurm knows no such job (any more); Unavailable, with why, if it does not answer
// before the deadline or cannot be asked here.
absl::StatusOr<SlurmJob> ShowSlurmJob(const std::string& id, absl::Time deadline);

// One line of `scontrol -o show job`. DataLoss if it describes no job.
absl::StatusOr<SlurmJob> ParseSlurmJob(absl::string_view line);

// The seconds of a time as Slurm writes and reads it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; 0 for
// UNLIMITED, INFINITE and 0. InvalidArgument otherwise.
absl::StatusOr<int64_t> ParseTimeLimit(absl::string_view text);

}  // namespace anyorder::launcher
