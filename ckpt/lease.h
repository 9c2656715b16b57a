// run-dir/LEASE: one owner of a run directory at a time. Plain files and renames only, because file
// locks fail on some network file systems.
//
// The owner rewrites the file every third of its lifetime. A claimant on the same machine looks
// whether the owner's process lives; on another machine it watches the file for one lifetime of its
// own clock, so clocks need not agree. A higher attempt may take over a dead lease; an owner that
// finds another name in the file must stop writing.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"

namespace anyorder::ckpt {

struct LeaseOwner {
  std::string run_id;
  int64_t attempt = 0;
  std::string host;
  std::string machine;  // boot id and process namespace: where `pid` means something
  int64_t pid = 0;
  int64_t pid_start = 0;  // start time of the process in clock ticks: tells a reused pid
  // Of the scheduler: "123 of CLUSTER restart 1", the last part after a requeue; or empty.
  std::string job;
  std::string socket_path;
  int64_t beat = 0;  // raised by every renewal

  // "run 'a', attempt 3, process 123 on host (job 456)"
  std::string ToString() const;
  bool IsSameProcess(const LeaseOwner& other) const;
};

// This process.
LeaseOwner DescribeThisProcess(const std::string& run_id, int64_t attempt,
                               const std::string& socket_path);

// True only if `owner` ran on this machine and has certainly ended.
bool IsKnownDead(const LeaseOwner& owner);

// NotFound if nobody holds the run directory; DataLoss if the file is damaged.
absl::StatusOr<LeaseOwner> ReadLease(FileSystem* fs, const std::string& run_dir);

// Thread-safe.
class Lease {
 public:
  // Blocks up to `lifetime` while it watches an owner on another machine, unless `has_ended`, which
  // may be null, knows from elsewhere (a scheduler) that this owner is gone.
  // Errors: AlreadyExists naming the owner if it is alive, or has an attempt >= ours.
  static absl::StatusOr<std::unique_ptr<Lease>> Acquire(
      FileSystem* fs, const std::string& run_dir, const LeaseOwner& me, absl::Duration lifetime,
      const std::function<bool(const LeaseOwner&)>& has_ended = nullptr);
  ~Lease();

  // Aborted naming the new owner if the lease was taken away. Other errors say that the file could
  // not be read.
  absl::Status CheckHeld();
  // CheckHeld, then a new heartbeat.
  absl::Status Renew();
  // Removes the file if it is still ours.
  absl::Status Release();

 private:
  Lease(FileSystem* fs, std::string run_dir, LeaseOwner me);
  absl::Status WriteLocked();
  absl::Status WriteAndRename(const std::string& temporary);
  absl::Status CheckHeldLocked();

  FileSystem* const fs_;
  const std::string run_dir_;
  std::mutex mutex_;
  LeaseOwner me_;
  bool released_ = false;
};

}  // namespace anyorder::ckpt
