// The trainer's side of the checkpoint service: one Client per rank.
//
// A save costs the trainer one memory copy, which also takes the checksums and which several
// threads share; state in device memory is copied in the background. Everything after that - disk,
// votes, commit - happens in anyorder-ckptd and continues even if every trainer is killed. Only
// SaveState::kCommitted means "saved".
//
// Thread-compatible: one thread at a time.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/protocol.h"
#include "ckpt/rank_file.h"

namespace anyorder::ckpt {

class StagingBuffer;

struct ClientOptions {
  std::string run_dir;
  std::string socket_path;  // empty: DefaultSocketPath(run_dir, node)
  std::string run_id;
  int64_t attempt = 0;  // raised at every start of the run; must equal the service's
  int rank = 0;
  int world_size = 1;
  int node = 0;
  int num_nodes = 1;
  int local_world_size = 0;  // ranks on this node; 0 means all (one node only)
  int ranks_of_node() const { return local_world_size > 0 ? local_world_size : world_size; }
  absl::Duration connect_limit = absl::Seconds(30);
  // What reads the ranges; borrowed. Null: they are host memory, and Save copies them itself.
  Copier* copier = nullptr;
  int staged_copies = 2;                         // of the rank's part, in host memory: 1 or 2
  absl::Duration copy_limit = absl::Minutes(2);  // after which the save has failed
  // That share the copy of host memory. 0: this rank's part of the machine's cores, up to four.
  int copy_threads = 0;
};

struct SaveResult {
  bool accepted = false;
  std::string skip_reason;  // set when not accepted
  int64_t generation = 0;   // names this save; the same on all ranks
  double stall_ms = 0;      // how long Save kept the caller
  int64_t bytes = 0;        // this rank's file
};

class Client {
 public:
  // Waits up to `connect_limit` for the service to listen.
  // Errors: Unavailable if it never does; FailedPrecondition if it serves another run or attempt.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Allocates and touches both staging buffers for saves of this size, so that the first Save is as
  // quick as the rest (fresh memory costs about ten times the copy). Optional: Save does it when
  // needed.
  // Errors: ResourceExhausted with the numbers if memory cannot hold twice this rank's state.
  absl::Status Prepare(const std::vector<TensorRange>& ranges);

  // Whether a Save now would be accepted by this rank's service: it is alive and a buffer is free.
  // Never waits for a disk. Ranks combine their answers with a collective of their own, then all
  // call Save or none does.
  bool CanSave(std::string* skip_reason = nullptr);

  // Copies `ranges` into a free buffer and returns once the service holds them as STAGED. With a
  // copier it returns before they are copied: the hand-over happens in later calls of any member
  // (not in destruction), a copy that fails is an ABANDONED event, and until then no other save is
  // accepted. The skipped outcome (both buffers busy, service gone) is not an error.
  // `metadata_json` is kept in the manifest as it is; it must be equal on all ranks, or empty on
  // ranks other than 0. All ranks must call Save equally often for a step.
  // `before_stage`, if any, is called between the copy and the hand-over: for what has to be
  // durable before the save can be committed, and may become so while it is copied. Its error gives
  // the save up. It is not called where the copy has failed.
  // Errors: InvalidArgument for ranges that make no sense; ResourceExhausted as in Prepare.
  absl::StatusOr<SaveResult> Save(int64_t step, const std::vector<TensorRange>& ranges,
                                  const std::string& metadata_json,
                                  std::function<absl::Status()> before_stage = nullptr);

  // What happened since the last call, oldest first. Never blocks.
  std::vector<SaveEvent> PollEvents();

  // Blocks until an accepted save of `step` is handed over, or its copy has failed, which
  // WaitCommitted tells. Returns at once without a copier. Errors: DeadlineExceeded after `limit`.
  absl::Status WaitStaged(int64_t step, absl::Duration limit);

  // Blocks until `step` is committed. Events stay available to PollEvents.
  // Errors: Unavailable with the reason if it was abandoned or the service died before the commit;
  // DeadlineExceeded after `limit`.
  absl::Status WaitCommitted(int64_t step, absl::Duration limit);

 private:
  explicit Client(const ClientOptions& options);
  absl::Status Connect(absl::Time deadline, absl::Duration answer_limit);
  struct Buffer {
    std::unique_ptr<StagingBuffer> memory;
    int64_t generation = 0;  // that uses it; 0: free
  };

  absl::Status Send(MessageBody body, absl::Time deadline) {
    return channel_->Send({options_.run_id, options_.attempt, std::move(body)}, deadline);
  }
  SaveIdentity IdentityOf(int64_t step, int64_t generation) const {
    return {options_.run_id,     options_.attempt,  generation, step,
            options_.world_size, options_.num_nodes};
  }
  void Drain();
  void Take(const Message& message);
  void LoseService(const absl::Status& why);
  template <typename Reply>
  absl::Status Await(absl::Duration limit);
  absl::Status Reserve(int64_t file_bytes);
  absl::Status RegisterBuffer(int index);
  absl::Status Copy(int index, const SaveIdentity& id, const RankFilePlan& plan,
                    const std::vector<TensorRange>& ranges, const std::string& metadata);
  int FreeBuffer() const;
  // Does a part of a copy in the background (ckpt/rank_file.h).
  void Advance();
  absl::Status HandOver(Stage stage);
  void Record(const SaveEvent& event);
  void Remember(const SaveEvent& decision) {
    last_of_step_[decision.step] = decision;
    if (last_of_step_.size() > 64) last_of_step_.erase(last_of_step_.begin());
  }
  bool IsCopying() { return copy_ != nullptr && copy_->is_running(); }
  void FreeMemory(Buffer& buffer);

  const ClientOptions options_;
  std::unique_ptr<Channel> channel_;  // null: the service is gone
  std::array<Buffer, 2> buffers_;
  int64_t last_step_ = -1;
  int64_t saves_ = 0;                           // at last_step_, before the current one
  std::deque<SaveEvent> events_;                // not yet given to PollEvents
  std::map<int64_t, SaveEvent> last_of_step_;   // newest decision of each recent step
  std::unique_ptr<BackgroundCopy> copy_;        // null without a copier
  std::unique_ptr<Stage> unstaged_;             // of its save, without CRCs
  std::function<absl::Status()> before_stage_;  // of the save that is copied
};

// Asks the service behind `socket_path` to finish what is staged and exit; needs no Client. With
// `only_if_idle` it refuses while a trainer is connected. Returns once it has agreed, not once it
// is gone.
// Errors: FailedPrecondition if it refuses, or serves another run or attempt; Unavailable if
// nobody answers.
absl::Status ShutDownService(const std::string& socket_path, const std::string& run_id,
                             int64_t attempt, bool only_if_idle);

}  // namespace anyorder::ckpt
