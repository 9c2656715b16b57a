// The two threads of the service that touch the disk: one takes staged saves in order and brings
// each to COMMITTED or ABANDONED, one reads what is committed back.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/commit.h"
#include "ckpt/protocol.h"
#include "ckpt/staging_buffer.h"
#include "core/base/file_system.h"
#include "core/base/mutex.h"

namespace anyorder::ckpt {

// A thread that does one piece of work after the other. Thread-safe.
template <typename Item>
class WorkQueue {
 public:
  explicit WorkQueue(std::function<void(Item)> work)
      : work_(std::move(work)), thread_([this] { Loop(); }) {}
  // Finishes what is queued.
  ~WorkQueue() {
    {
      const MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  void Enqueue(Item item) {
    const MutexLock lock(&mutex_);
    queue_.push_back(std::move(item));
  }

  // Queued or being done.
  int num_pending() const {
    const MutexLock lock(&mutex_);
    return static_cast<int>(queue_.size()) + (is_busy_ ? 1 : 0);
  }

  // Drops the queue, and ends what is being done as soon as it asks.
  void Cancel() {
    const MutexLock lock(&mutex_);
    cancelled_ = true;
    queue_.clear();
  }

  // For the work itself.
  bool is_cancelled() const {
    const MutexLock lock(&mutex_);
    return cancelled_;
  }
  // False, at once, when it is cancelled.
  bool Sleep(absl::Duration time) {
    const auto is_cancelled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return cancelled_; };
    const MutexLock lock(&mutex_);
    return !mutex_.AwaitWithTimeout(is_cancelled, time);
  }

 private:
  void Loop() {
    const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !queue_.empty();
    };
    const MutexLock lock(&mutex_);
    while (true) {
      mutex_.Await(has_work);
      if (queue_.empty()) return;
      Item item = std::move(queue_.front());
      queue_.pop_front();
      is_busy_ = true;
      mutex_.Unlock();
      work_(std::move(item));
      mutex_.Lock();
      is_busy_ = false;
    }
  }

  const std::function<void(Item)> work_;
  mutable Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when everything above is ready
};

// A save whose local ranks have all staged - or, with `abandon_reason`, one that never will.
struct QueuedSave {
  SaveJob job;
  bool is_coordinator = false;
  // Keeps the memory behind job.files mapped, also when the trainer that made it is gone: shared
  // with its connection.
  std::vector<std::shared_ptr<StagingBuffer>> buffers = {};
  std::string abandon_reason = {};
  absl::Time began;     // the first rank's COPYING
  double stall_ms = 0;  // of the slowest rank
};

// One change of state, with the numbers known by then; the rest stay 0.
struct SaveProgress {
  SaveIdentity id;
  SaveState state = SaveState::kCopying;
  std::string reason = {};
  int64_t bytes = 0;       // of this node; of the whole checkpoint from COMMITTED on
  int64_t node_bytes = 0;  // what the rates are about
  double stall_ms = 0;
  WriteTimes times = {};
  double seconds = 0;         // since `began`
  double verify_seconds = 0;  // of VERIFIED and DAMAGED
  int64_t free_bytes = 0;
};

// The options of the whole service (service.h): node 0's lease, its trainers and its writer.
struct ServiceOptions {
  std::string run_dir;      // must exist
  std::string socket_path;  // empty: DefaultSocketPath(run_dir, node)
  std::string run_id;
  int64_t attempt = 0;  // the launcher raises it at every start; names lease and generations
  int node = 0;
  int num_nodes = 1;
  // The launcher knows that no service of an attempt up to this one runs any more, so their lease
  // need not be watched. 0: nothing is known.
  int64_t ended_attempt = 0;

  int keep_last = 2;                // newest checkpoints kept; at least 2
  int64_t keep_every = 0;           // also keep every step divisible by this; 0: no
  bool verify_after_commit = true;  // read each checkpoint back before older ones are deleted

  int num_writer_threads = 2;  // two: one checks sums while the other waits for the disk
  absl::Duration stage_limit = absl::Minutes(5);    // from the first rank's copy to the last one's
  absl::Duration vote_limit = absl::Minutes(5);     // waiting for the other nodes
  absl::Duration read_back_limit = absl::Hours(1);  // the same, for what they find in their files
  // How long after the end of a node's service its vote may still appear: as long as the file
  // system may hide a file of another node. Then the vote counts as missing.
  absl::Duration ended_grace = absl::Seconds(2);
  absl::Duration lease_lifetime = absl::Seconds(15);  // node 0 renews every third of it
  // The service ends when LEASE could not be read for this long. Nothing is committed meanwhile.
  absl::Duration file_system_limit = absl::Seconds(300);
  // For an earlier attempt's service to finish its saves.
  absl::Duration predecessor_limit = absl::Minutes(2);
  absl::Duration idle_limit = absl::Seconds(60);  // exit this long after the last trainer left
  absl::Duration first_client_limit = absl::Minutes(10);  // the same, before the first trainer came

  FileSystem* fs = FileSystem::Posix();

  absl::Status Validate() const;  // InvalidArgument with all values
};

struct CommittedSave {
  SaveProgress progress;   // as of COMMITTED
  std::vector<int> ranks;  // whose files this node wrote
  bool is_coordinator = false;
};

// One thread writes the saves in order. Another reads committed checkpoints back, while the next
// ones are written: each node the files that it wrote. The coordinator waits for what the others
// found; then it retires older checkpoints, or sets a damaged one aside.
class SaveWriter {
 public:
  // `fence` fails when another attempt owns the run directory. `report` is called on both threads.
  // The destructor finishes the queues.
  SaveWriter(CommitLog* log, const ServiceOptions& options, std::function<absl::Status()> fence,
             std::function<void(const SaveProgress&)> report);

  void Enqueue(QueuedSave save) { saves_.Enqueue(std::move(save)); }
  // Saves queued, being written or being read back.
  int num_pending() const { return saves_.num_pending() + committed_.num_pending(); }
  // Gives up waiting and drops the queues: the run directory is no longer ours.
  void Cancel() {
    saves_.Cancel();
    committed_.Cancel();
  }

 private:
  void Write(QueuedSave save);
  absl::Status WriteAndDecide(QueuedSave* save, SaveProgress* progress);
  absl::Status AwaitDecision(const QueuedSave& save, SaveProgress* progress);
  absl::StatusOr<Manifest> LookForVotes(const SaveIdentity& id, NodeRecords& votes,
                                        std::string* ended);
  absl::Status LookForDecision(const SaveIdentity& id, int look, std::string* ended);
  void Report(SaveProgress* progress, SaveState state, absl::Time began);

  void Verify(CommittedSave save);
  absl::Status ReadBack(const CommittedSave& save);
  absl::Status AwaitOthers(const SaveIdentity& id);
  void SetAside(const SaveIdentity& id);
  void Retire(const SaveIdentity& id);

  CommitLog* const log_;
  const ServiceOptions options_;
  const std::function<absl::Status()> fence_;
  const std::function<void(const SaveProgress&)> report_;
  WorkQueue<CommittedSave> committed_;  // the queue below gives it work to its end
  WorkQueue<QueuedSave> saves_;         // last: its thread uses all of the above
};

// run-dir/ckptd.node00.jsonl: one JSON object per change of state, appended with one write(2) each.
// For people and `anyorder status`; nothing is decided by it, so it is not synced.
class EventLog {
 public:
  static absl::StatusOr<EventLog> Open(FileSystem* fs, const std::string& run_dir, int node);

  // Also prints one line to stderr for COMMITTED, ABANDONED and DAMAGED. `lag_steps` is how far
  // training has begun to save ahead of this step.
  void Write(const SaveProgress& progress, int64_t lag_steps);

 private:
  explicit EventLog(std::unique_ptr<AppendableFile> file) : file_(std::move(file)) {}
  std::unique_ptr<AppendableFile> file_;
};

}  // namespace anyorder::ckpt
