// Copies a save's state out of the device's memory on a stream of its own, while the next step
// computes. What changes the state is held back on the device until the copy has read it; the host
// waits for nothing.
//
// The recurrence memory needs no more. The step after a save writes the free slots of its rings,
// none of which the save reads; the first that writes over what was saved is the one after that,
// and an update lies between.

#pragma once

#include <map>
#include <memory>

#include "absl/status/statusor.h"

#include "ckpt/client.h"
#include "kernels/backend.h"

namespace anyorder {

class SnapshotCopier final : public ckpt::Copier {
 public:
  // `backend` is borrowed.
  static absl::StatusOr<std::unique_ptr<SnapshotCopier>> Create(kernels::Backend& backend);
  // A copy that is still under way keeps its memory pinned for good.
  ~SnapshotCopier() override;

  void Prepare(void* staging, int64_t bytes) override;
  void Release(void* staging) override { registrations_.erase(staging); }
  void Begin() override;
  void Copy(const void* data, void* staging, int64_t bytes) override;
  void End() override;
  absl::StatusOr<bool> IsDone() override;

  // Before anything that changes what a save reads: all that the main stream is asked for from now
  // on runs after the last copy.
  void MakeUpdatesWait() { after_->Wait({}); }

 private:
  explicit SnapshotCopier(kernels::Backend& backend) : backend_(backend) {}

  kernels::Backend& backend_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<kernels::Event> before_;  // the state is what it should be
  std::unique_ptr<kernels::Event> after_;   // and has been read
  std::map<void*, std::unique_ptr<kernels::HostRegistration>> registrations_;
};

}  // namespace anyorder
