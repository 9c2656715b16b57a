// run-dir/LEASE: one owner of a run directory at a time. Plain files and renames only, because file
// locks fail on some network file systems.
//
// The owner rewrites the file every third of its lifetime. A claimant on the same machine looks
// whether the owner's process lives; on another machine it watches the file for one lifetime of its
// own clock, so clocks need not agree. A higher attempt may take over a dead lease; an owner that
// finds another name in the file must stop writing.
//
// Any process may stop for any time inside any file call. A process that replaces the file
// therefore writes a temporary file first, then looks at LEASE, then renames; and a claimant, when
// LEASE names it, removes the temporary files of all others before it calls the lease its own. A
// rename that comes later has nothing to rename (PROTOCOL.md, "Late calls").

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"

namespace anyorder::ckpt {

struct LeaseOwner {
  std::string run_id;
  int64_t attempt = 0;
  std::string host;
  std::string machine;  // boot id and process namespace: where `pid` means something
  int64_t pid = 0;
  int64_t pid_start = 0;  // start time of the process in clock ticks: tells a reused pid
  // The scheduler's job: "123 of CLUSTER restart 1", the last part after a requeue; or empty.
  std::string job;
  std::string socket_path;
  int64_t beat = 0;  // raised by every renewal; 0 once the lease was released

  // "run 'a', attempt 3, process 123 on host (job 456)"
  std::string ToString() const;
  bool IsSameProcess(const LeaseOwner& other) const {
    return run_id == other.run_id && attempt == other.attempt && machine == other.machine &&
           pid == other.pid && pid_start == other.pid_start;
  }
};

// This process.
LeaseOwner DescribeThisProcess(const std::string& run_id, int64_t attempt,
                               const std::string& socket_path);

// True only if `owner` ran on this machine and has certainly ended.
bool IsKnownDead(const LeaseOwner& owner);

// NotFound if nobody holds the run directory: there is no file, or its owner has released it.
// DataLoss if the file is damaged.
absl::StatusOr<LeaseOwner> ReadLease(FileSystem* fs, const std::string& run_dir);

// Thread-safe.
class Lease {
 public:
  // Blocks up to `lifetime` by `clock` while it watches an owner on another machine, unless
  // `has_ended`, which may be null, knows from elsewhere (a scheduler) that this owner is gone.
  // Errors: AlreadyExists naming the owner if it is alive, or has an attempt >= ours.
  static absl::StatusOr<std::unique_ptr<Lease>> Acquire(
      FileSystem* fs, const std::string& run_dir, const LeaseOwner& me, absl::Duration lifetime,
      const std::function<bool(const LeaseOwner&)>& has_ended = nullptr,
      Clock* clock = Clock::Monotonic());
  ~Lease() { Release().IgnoreError(); }

  // Aborted naming the new owner if the lease was taken away. Other errors say that the file could
  // not be read.
  absl::Status CheckHeld();
  // A new heartbeat if it is still ours; otherwise the errors of CheckHeld.
  absl::Status Renew();
  // Marks the file as released if it is still ours. LEASE itself stays.
  absl::Status Release();

 private:
  Lease(FileSystem* fs, std::string run_dir, LeaseOwner me);
  // Writes `me_` to a temporary file, asks `may_replace`, and renames it to LEASE. Aborted also if
  // a claimant removed the temporary file meanwhile.
  absl::Status Replace(const std::function<absl::Status()>& may_replace)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem* const fs_;
  const std::string run_dir_;
  const LeaseOwner owner_;  // for CheckHeld, which must not wait for a Renew that blocks

  Mutex mutex_;
  LeaseOwner me_ ABSL_GUARDED_BY(mutex_);
  // LEASE has been ours and was not released.
  bool is_ours_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace anyorder::ckpt
