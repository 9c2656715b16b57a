// How a new start of a run takes over from the one before.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/commit.h"
#include "ckpt/lease.h"
#include "ckpt/save_writer.h"

namespace anyorder::ckpt {

// Node 0 takes the lease, with what the options know of earlier owners. The others own none (null);
// they wait for node 0 to have it, and work under that. Errors: AlreadyExists naming the
// owner if an earlier service still has trainers; those of Lease::Acquire; DeadlineExceeded.
absl::StatusOr<std::unique_ptr<Lease>> TakeOrAwaitLease(const ServiceOptions& options);

// With the lease in hand: finishes or removes what dead starts left half-made, and writes a
// RECOVERED line for what was finished. A disk that refuses to read or delete it is worth a
// warning, not an end: training matters more. Errors: a save stays where its service could still
// commit it; Aborted if the lease was lost.
absl::Status TidyUpAfterDeadStarts(const ServiceOptions& options,
                                   const std::function<absl::Status()>& fence,
                                   CommitLog* commit_log, EventLog* event_log);

}  // namespace anyorder::ckpt
