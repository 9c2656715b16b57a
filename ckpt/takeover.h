// How a new start of a run takes over from the one before.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/commit.h"
#include "ckpt/event_log.h"
#include "ckpt/lease.h"
#include "ckpt/service.h"

namespace anyorder::ckpt {

// If an earlier start's service still runs on this machine but its trainers are gone, asks it to
// finish and waits, so that a restart right after a kill finds the last staged checkpoint
// committed.
// Errors: AlreadyExists naming the owner if it still has trainers.
absl::Status RetirePredecessor(const ServiceOptions& options);

// Node 0 takes the lease, with what the options know of earlier owners. The others own none (null);
// they wait for node 0 to have it, and work under that. Errors: those of RetirePredecessor and
// Lease::Acquire; DeadlineExceeded.
absl::StatusOr<std::unique_ptr<Lease>> TakeOrAwaitLease(const ServiceOptions& options);

// With the lease in hand: finishes or removes what dead starts left half-made, and writes a
// RECOVERED line for what was finished. A disk that refuses is worth a warning, not an end:
// training matters more.
void TidyUpAfterDeadStarts(const ServiceOptions& options,
                           const std::function<absl::Status()>& fence, CommitLog* commit_log,
                           EventLog* event_log);

}  // namespace anyorder::ckpt
