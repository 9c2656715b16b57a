#include "ckpt/takeover.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "ckpt/client.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

absl::Status AwaitLeaseOfNode0(const ServiceOptions& o) {
  const absl::Time deadline = absl::Now() + o.predecessor_limit + o.lease_lifetime;
  while (true) {
    const absl::StatusOr<LeaseOwner> owner = ReadLease(o.fs, o.run_dir);
    if (owner.ok() && owner->run_id == o.run_id && owner->attempt == o.attempt) {
      return absl::OkStatus();
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the service of node 0 did not take the lease on '", o.run_dir, "'"));
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
}

}  // namespace

absl::Status RetirePredecessor(const ServiceOptions& o) {
  const absl::Time deadline = absl::Now() + o.predecessor_limit;
  bool has_asked = false;
  while (absl::Now() < deadline) {
    const absl::StatusOr<LeaseOwner> owner = ReadLease(o.fs, o.run_dir);
    if (!owner.ok() || owner->run_id != o.run_id || owner->attempt >= o.attempt ||
        owner->machine != DescribeThisProcess("", 0, "").machine || IsKnownDead(*owner)) {
      return absl::OkStatus();  // nobody to ask; Lease::Acquire judges the rest
    }
    if (!has_asked) {
      const absl::Status asked =
          ShutDownService(owner->socket_path, owner->run_id, owner->attempt, /*only_if_idle=*/true);
      if (absl::IsFailedPrecondition(asked)) {
        return absl::AlreadyExistsError(absl::StrCat("'", o.run_dir, "' is in use by ",
                                                     owner->ToString(), ": ", asked.message()));
      }
      has_asked = asked.ok();
      if (has_asked) Log(absl::StrCat("waiting for the saves of ", owner->ToString()));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Lease>> TakeOrAwaitLease(const ServiceOptions& o) {
  if (o.node != 0) {
    ANYORDER_RETURN_IF_ERROR(AwaitLeaseOfNode0(o));
    return std::unique_ptr<Lease>();
  }
  ANYORDER_RETURN_IF_ERROR(RetirePredecessor(o));
  return Lease::Acquire(o.fs, o.run_dir, DescribeThisProcess(o.run_id, o.attempt, o.socket_path),
                        o.lease_lifetime, [&o](const LeaseOwner& owner) {
                          return owner.run_id == o.run_id && owner.attempt <= o.ended_attempt;
                        });
}

void TidyUpAfterDeadStarts(const ServiceOptions& o, const std::function<absl::Status()>& fence,
                           CommitLog* commit_log, EventLog* event_log) {
  const absl::StatusOr<std::optional<SaveIdentity>> recovered =
      commit_log->RecoverVoted(o.run_id, o.attempt, fence);
  if (recovered.ok() && recovered->has_value()) {
    SaveProgress progress;
    progress.id = **recovered;
    progress.state = SaveState::kRecovered;
    event_log->Write(progress, 0);
  }
  const absl::Status tidy =
      recovered.ok() ? commit_log->RemoveLeftovers(o.attempt) : recovered.status();
  if (!tidy.ok()) LogWarning(absl::StrCat("leftovers of earlier starts stay: ", tidy.message()));
}

}  // namespace anyorder::ckpt
