// The launcher's lease on a run directory: kept in the background, and asked before each thing that
// only its holder may do.

#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/lease.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/periodic_task.h"
#include "launcher/run/run_identity.h"

namespace anyorder::launcher {

// Whether the job of a lease (ckpt/lease.h) certainly runs no more: it ended, or was requeued
// since. `this_job` in the same form: what runs now.
using JobHasEndedQuestion = bool (*)(const std::string& job, const std::string& this_job);

class HeldLease {
 public:
  // Errors: those of ckpt::Lease::Acquire.
  static absl::StatusOr<std::unique_ptr<HeldLease>> Acquire(const RunDirectory& paths,
                                                            const RunIdentity& identity,
                                                            JobHasEndedQuestion job_has_ended);
  // Gives the lease back if it is still ours.
  ~HeldLease();
  HeldLease(const HeldLease&) = delete;
  HeldLease& operator=(const HeldLease&) = delete;

  // Looks at the file: a process that was stopped, or whose machine was suspended, may have lost
  // the lease without knowing. Call it before writing to the run directory and before starting or
  // removing anything of the run. Waits for as long as the file system does. Aborted naming the new
  // owner; other errors say that the file could not be read.
  absl::Status Check();
  // What the last look or renewal found; never blocks. A file system that does not answer is no
  // loss.
  bool is_lost() const { return is_lost_; }

 private:
  explicit HeldLease(std::unique_ptr<ckpt::Lease> lease);
  absl::Status Note(const absl::Status& status);
  void Renew();

  const std::unique_ptr<ckpt::Lease> lease_;
  std::atomic<bool> is_lost_ = false;
  const PeriodicTask keeper_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
