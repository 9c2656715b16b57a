#include "core/train/state/saver.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/run/stop_signal.h"

namespace anyorder {
namespace {

constexpr absl::Duration kCommitSlice = absl::Milliseconds(50);

}  // namespace

absl::StatusOr<std::unique_ptr<Saver>> Saver::Connect(const CheckpointConfig& config,
                                                      ckpt::ClientOptions options,
                                                      dist::Communicator& communicator) {
  options.rank = communicator.rank();
  options.world_size = communicator.world_size();
  ASSIGN_OR_RETURN(std::unique_ptr<ckpt::Client> client, ckpt::Client::Connect(options));
  return std::unique_ptr<Saver>(new Saver(config, std::move(client), communicator));
}

absl::Status Saver::Prepare(const std::vector<ckpt::TensorRange>& ranges) {
  return client_->Prepare(ranges);
}

bool Saver::CanSave() { return client_->CanSave(&skip_reason_); }

absl::Status Saver::Save(int64_t step, const std::vector<ckpt::TensorRange>& ranges,
                         const std::string& metadata, std::function<absl::Status()> before_stage) {
  ASSIGN_OR_RETURN(const ckpt::SaveResult result,
                   client_->Save(step, ranges, metadata, std::move(before_stage)));
  last_stall_ms_ = result.stall_ms;
  if (result.accepted) {
    saved_step_ = step;
  } else {
    CountFailure(step, result.skip_reason);
  }
  return absl::OkStatus();
}

// Busy buffers only say that saves come faster than the disk takes them, so that a skipped save is
// no failure by itself.
void Saver::SkipSave(int64_t step) {
  if (skip_reason_.empty()) return;  // another rank's buffers
  LogWarning(absl::StrCat("step ", step, " is not saved: ", skip_reason_));
  const absl::Duration unsaved = MonotonicNow() - last_commit_;
  if (unsaved < absl::Seconds(config_.commit_seconds)) return;
  fault_ = Unavailable("no checkpoint was committed for ", absl::FormatDuration(unsaved), ": ",
                       skip_reason_);
}

void Saver::CountFailure(int64_t step, const std::string& reason) {
  ++failures_;
  LogWarning(absl::StrCat("step ", step, " was not saved: ", reason));
  if (failures_ < config_.max_failed_saves) return;
  fault_ = Unavailable(failures_,
                       " saves in a row failed "
                       "(checkpoint.max_failed_saves), the last of step ",
                       step, ": ", reason,
                       "; fix the cause (see ckptd.log) and launch again: "
                       "the run resumes from its last checkpoint");
}

void Saver::TakeEvents() {
  for (const ckpt::SaveEvent& event : client_->PollEvents()) {
    events_.push_back(event);
    if (event.state == ckpt::SaveState::kCommitted) {
      failures_ = 0;
      last_commit_ = MonotonicNow();
    }
    if (event.state != ckpt::SaveState::kAbandoned) continue;
    if (event.step == saved_step_) saved_step_ = -1;
    // Every rank is told; one warning is enough.
    if (communicator_.rank() == 0) CountFailure(event.step, event.reason);
  }
}

std::vector<ckpt::SaveEvent> Saver::Poll() {
  TakeEvents();
  return std::exchange(events_, {});
}

absl::Status Saver::AwaitRoom() {
  const absl::Time deadline = MonotonicNow() + absl::Seconds(config_.commit_seconds);
  while (true) {
    int64_t all_can[] = {CanSave() ? 1 : 0};
    const std::string reason = skip_reason_;
    communicator_.AllReduceMin(absl::MakeSpan(all_can));
    if (all_can[0] == 1) return absl::OkStatus();
    // Rank 0's clock decides, so that no rank leaves alone.
    int64_t late[] = {communicator_.rank() == 0 && MonotonicNow() > deadline ? 1 : 0};
    communicator_.AllReduceMax(absl::MakeSpan(late));
    if (late[0] == 1) {
      const absl::Status mine = reason.empty() ? absl::OkStatus() : Unavailable(reason);
      RETURN_IF_ERROR(communicator_.AllAgree(mine));
      return Unavailable("the checkpoint service did not accept a save in time");
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
}

absl::Status Saver::SaveAndAgree(int64_t step, const std::vector<ckpt::TensorRange>& ranges,
                                 const std::string& metadata) {
  RETURN_IF_ERROR(AwaitRoom());
  RETURN_IF_ERROR(communicator_.AllAgree(Save(step, ranges, metadata)));
  return communicator_.AllAgree(
      saved_step_ == step ? absl::OkStatus() : Unavailable("step ", step, " was not staged"));
}

absl::Status Saver::Finish(int64_t step, const std::vector<ckpt::TensorRange>& ranges,
                           const std::string& metadata) {
  if (step == loaded_step_) return absl::OkStatus();
  TakeEvents();
  int64_t all_saved[] = {saved_step_ == step ? 1 : 0};
  communicator_.AllReduceMin(absl::MakeSpan(all_saved));
  if (all_saved[0] == 0) RETURN_IF_ERROR(SaveAndAgree(step, ranges, metadata));
  return AwaitCommit(step);
}

// In slices, between which the ranks agree whether to go on waiting.
absl::Status Saver::AwaitCommit(int64_t step) {
  const absl::Time deadline = MonotonicNow() + absl::Seconds(config_.commit_seconds);
  // A rank that leaves before its state is out of the device's memory takes the save with it,
  // however urgent the stop.
  RETURN_IF_ERROR(
      communicator_.AllAgree(client_->WaitStaged(step, absl::Seconds(config_.commit_seconds))));
  while (true) {
    const absl::Status mine = client_->WaitCommitted(step, kCommitSlice);
    // Rank 0's clock decides, so that no rank leaves alone.
    const bool is_late = communicator_.rank() == 0 && MonotonicNow() > deadline;
    std::array<int64_t, 3> any{absl::IsDeadlineExceeded(mine) ? 1 : 0, StopIsUrgent() ? 1 : 0,
                               is_late ? 1 : 0};
    communicator_.AllReduceMax(absl::MakeSpan(any));
    if (any[0] == 0) return communicator_.AllAgree(mine);
    if (any[1] == 0 && any[2] == 0) continue;
    left_staged_ = any[1] == 1;
    if (left_staged_)
      return communicator_.AllAgree(absl::IsDeadlineExceeded(mine) ? absl::OkStatus() : mine);
    return DeadlineExceeded("checkpoint of step ", step, " was not committed within ",
                            config_.commit_seconds,
                            " s (checkpoint.commit_seconds); see ckptd.log for its progress");
  }
}

}  // namespace anyorder
