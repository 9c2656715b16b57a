#include "core/train/state/snapshot_copier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

// Between two pieces the step that runs during the save gets its losses, which the device brings to
// the host by the same engine: about a millisecond of PCIe.
constexpr int64_t kPieceBytes = int64_t{32} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotCopier>> SnapshotCopier::Create(kernels::Backend& backend) {
  std::unique_ptr<SnapshotCopier> copier(new SnapshotCopier(backend));
  ASSIGN_OR_RETURN(copier->stream_, backend.MakeStream(kernels::StreamPurpose::kCopies));
  ASSIGN_OR_RETURN(copier->before_, backend.MakeEvent());
  ASSIGN_OR_RETURN(copier->after_, backend.MakeEvent());
  return copier;
}

// Whoever gave the memory leaves it to the device then (ckpt::Client), and the device must not lose
// it here.
SnapshotCopier::~SnapshotCopier() {
  if (after_ == nullptr) return;
  const absl::StatusOr<bool> is_reached = after_->IsReached();
  if (!is_reached.ok() || *is_reached) return;
  for (auto& [staging, registration] : registrations_) registration.release();
}

void SnapshotCopier::Prepare(void* staging, int64_t bytes) {
  absl::StatusOr<std::unique_ptr<kernels::HostRegistration>> registration =
      backend_.RegisterHost(staging, bytes);
  if (registration.ok()) {
    registrations_[staging] = *std::move(registration);
  } else {
    LogWarning(absl::StrCat("saves slow down the steps that overlap them: ",
                            registration.status().message()));
  }
}

void SnapshotCopier::Begin() {
  before_->Record({});
  before_->Wait(stream_->view());
}

void SnapshotCopier::Copy(const void* data, void* staging, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    backend_.CopyToHost(static_cast<const char*>(data) + begin, static_cast<char*>(staging) + begin,
                        std::min(kPieceBytes, bytes - begin), stream_->view());
  }
}

void SnapshotCopier::End() { after_->Record(stream_->view()); }

absl::StatusOr<bool> SnapshotCopier::IsDone() {
  ASSIGN_OR_RETURN(const bool is_reached, after_->IsReached());
  if (!is_reached) return false;
  // Nothing is left to wait for, but what went to memory that is not pinned may only arrive by
  // this.
  backend_.Synchronize(stream_->view());
  return true;
}

}  // namespace anyorder
