// When and how a run saves: a thin layer over ckpt::Client that all ranks go through alike.
//
// A periodic save never waits: if a rank cannot take it, all skip it. The last save of a run waits
// until it is committed.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/client.h"
#include "core/base/monotonic_clock.h"
#include "core/train/run/run_config.h"
#include "dist/communicator.h"

namespace anyorder {

class Saver {
 public:
  // Connects to this node's service. `options` without ranks and world size. Local: the caller
  // makes ranks agree.
  static absl::StatusOr<std::unique_ptr<Saver>> Connect(const CheckpointConfig& config,
                                                        ckpt::ClientOptions options,
                                                        dist::Communicator& communicator);

  // Touches the staging memory. ResourceExhausted if the machine has no room for it.
  absl::Status Prepare(const std::vector<ckpt::TensorRange>& ranges);

  // Whether step `step` (steps finished) is one after which the run saves.
  bool IsDue(int64_t step) const { return config_.every > 0 && step % config_.every == 0; }
  // This rank could take a save now. Where it cannot, the reason is logged by SkipSave.
  bool CanSave();

  // The ranks agreed (in the step's reduction) to save, or that one of them cannot. Save: no rank
  // may skip it. `before_stage`: as in ckpt::Client::Save.
  absl::Status Save(int64_t step, const std::vector<ckpt::TensorRange>& ranges,
                    const std::string& metadata,
                    std::function<absl::Status()> before_stage = nullptr);
  void SkipSave(int64_t step);
  // Collective: waits until all ranks can save, checkpoint.commit_seconds at most, or says why
  // one cannot.
  absl::Status AwaitRoom();

  // Collective: makes sure that a checkpoint of `step` is committed or, if a stop is urgent
  // (stop_signal.h), staged. Unavailable or DeadlineExceeded if that fails or takes too long.
  absl::Status Finish(int64_t step, const std::vector<ckpt::TensorRange>& ranges,
                      const std::string& metadata);

  // Finish did not wait for the commit. Equal on all ranks.
  bool left_staged() const { return left_staged_; }

  // What became of earlier saves, oldest first.
  std::vector<ckpt::SaveEvent> Poll();
  // Not OK once too many saves in a row came to nothing, or none was possible for long.
  const absl::Status& fault() const { return fault_; }

  // A step that needs no saving: it was just loaded.
  void set_loaded_step(int64_t step) { loaded_step_ = step; }
  double last_stall_ms() const { return last_stall_ms_; }

 private:
  Saver(const CheckpointConfig& config, std::unique_ptr<ckpt::Client> client,
        dist::Communicator& communicator)
      : config_(config), client_(std::move(client)), communicator_(communicator) {}
  absl::Status AwaitCommit(int64_t step);
  absl::Status SaveAndAgree(int64_t step, const std::vector<ckpt::TensorRange>& ranges,
                            const std::string& metadata);
  // A save came to nothing, for this reason; too many in a row are a fault.
  void CountFailure(int64_t step, const std::string& reason);
  void TakeEvents();

  const CheckpointConfig& config_;
  std::unique_ptr<ckpt::Client> client_;
  dist::Communicator& communicator_;
  std::string skip_reason_;
  int64_t loaded_step_ = -1;
  int64_t saved_step_ = -1;  // of the last save that this rank's service took
  bool left_staged_ = false;
  int64_t failures_ = 0;  // in a row
  double last_stall_ms_ = 0;
  absl::Time last_commit_ = MonotonicNow();  // or the start
  std::vector<ckpt::SaveEvent> events_;      // not polled yet
  absl::Status fault_;
};

}  // namespace anyorder
