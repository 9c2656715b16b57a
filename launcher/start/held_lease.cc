#include "launcher/start/held_lease.h"

#include "absl/time/time.h"

#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kLeaseLifetime = absl::Seconds(15);

}  // namespace

absl::StatusOr<std::unique_ptr<HeldLease>> HeldLease::Acquire(const RunDirectory& paths,
                                                              const RunIdentity& identity,
                                                              JobHasEndedQuestion job_has_ended) {
  const ckpt::LeaseOwner me = ckpt::DescribeThisProcess(identity.run_id, identity.attempt, "");
  ASSIGN_OR_RETURN(std::unique_ptr<ckpt::Lease> lease,
                   ckpt::Lease::Acquire(FileSystem::Posix(), paths.launch, me, kLeaseLifetime,
                                        [&](const ckpt::LeaseOwner& owner) {
                                          return job_has_ended(owner.job, me.job);
                                        }));
  return std::unique_ptr<HeldLease>(new HeldLease(std::move(lease)));
}

HeldLease::HeldLease(std::unique_ptr<ckpt::Lease> lease)
    : lease_(std::move(lease)), keeper_(kLeaseLifetime / 3, [this] { Renew(); }) {}

HeldLease::~HeldLease() {
  const absl::Status released = lease_->Release();
  if (!released.ok() && !is_lost_) LogWarning(released.message());
}

absl::Status HeldLease::Check() { return Note(lease_->CheckHeld()); }

absl::Status HeldLease::Note(const absl::Status& status) {
  if (!absl::IsAborted(status)) return status;
  is_lost_ = true;
  return Aborted(status.message(),
                 "; this launcher has ended its ranks and writes nothing more; see `anyorder "
                 "status` for the run");
}

void HeldLease::Renew() {
  if (is_lost_) return;
  const absl::Status renewed = Note(lease_->Renew());
  if (!renewed.ok() && !is_lost_) LogWarning(renewed.message());
}

}  // namespace anyorder::launcher
