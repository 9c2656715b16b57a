// The sign of life of a launcher whose ranks are on other nodes, and the ranks' side of it.
//
// On one machine the kernel ends the ranks with their launcher. A node whose network was cut keeps
// its ranks: Slurm calls the job's other processes dead and starts it elsewhere, and when the link
// is back the old ranks would still compute, read the dataset and hold the node's memory. They
// cannot commit (their service has lost its lease), but nothing else ends them, so they end
// themselves.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "dist/heartbeat.h"
#include "launcher/process/periodic_task.h"

namespace anyorder::launcher {

// Of a clock that nobody sets and that stands still with the machine.
absl::Duration Uptime();

// Beats in run-dir/.launch/launcher for one start, from its begin to its end. A file with blocks
// of its own, because a lease, which is a new file each time, stops on a full disk.
class LauncherHeartbeat {
 public:
  static absl::Status Begin(const std::string& run_dir, int64_t attempt,
                            std::optional<LauncherHeartbeat>& heartbeat);
  explicit LauncherHeartbeat(std::unique_ptr<dist::Heartbeat> heartbeat);

 private:
  const std::unique_ptr<dist::Heartbeat> heartbeat_;
  const PeriodicTask beat_;
};

// Judges what a rank reads of its heartbeat. No clock and no file of its own, so that tests can
// say what was seen when.
class LauncherHeartbeatWatch {
 public:
  // `silence_limit`: how long the launcher may be silent.
  LauncherHeartbeatWatch(int64_t attempt, absl::Duration silence_limit)
      : attempt_(attempt), silence_limit_(silence_limit) {}

  // `beat` as read now, `now` of Uptime(). Why the rank must end, or "".
  std::string Judge(const absl::StatusOr<dist::RankBeat>& beat, absl::Duration now);

 private:
  const int64_t attempt_;
  const absl::Duration silence_limit_;
  int64_t ticks_ = -1;
  std::optional<absl::Duration> since_;  // when they last changed
};

// From now on, in a thread of its own until the process ends: ends the process (74) with one line
// when its start of the run is over, replaced or without a heartbeat.
void FenceThisRank(const std::string& run_dir, int64_t attempt);

}  // namespace anyorder::launcher
