#include "core/train/snapshot_copier.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<SnapshotCopier>> SnapshotCopier::Create(kernels::Backend& backend) {
  std::unique_ptr<SnapshotCopier> copier(new SnapshotCopier(backend));
  ANYORDER_ASSIGN_OR_RETURN(copier->stream_, backend.MakeStream());
  ANYORDER_ASSIGN_OR_RETURN(copier->before_, backend.MakeEvent());
  ANYORDER_ASSIGN_OR_RETURN(copier->after_, backend.MakeEvent());
  return copier;
}

void SnapshotCopier::Prepare(void* staging, int64_t bytes) {
  absl::StatusOr<std::unique_ptr<kernels::HostRegistration>> registration =
      backend_.RegisterHost(staging, bytes);
  if (registration.ok()) {
    registrations_[staging] = *std::move(registration);
  } else {
    LogWarning(
        absl::StrCat("saves hold up the steps beside them: ", registration.status().message()));
  }
}

void SnapshotCopier::Begin() {
  before_->Record({});
  before_->HoldBack(stream_->view());
}

void SnapshotCopier::Copy(const void* data, void* staging, int64_t bytes) {
  backend_.CopyToHost(data, staging, bytes, stream_->view());
}

void SnapshotCopier::End() {
  after_->Record(stream_->view());
}

}  // namespace anyorder
