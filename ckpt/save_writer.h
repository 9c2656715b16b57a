// The thread of the service that touches the disk: takes staged saves in order and brings each to
// COMMITTED or ABANDONED.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "ckpt/commit.h"
#include "ckpt/save_event.h"
#include "ckpt/staging_buffer.h"

namespace anyorder::ckpt {

// A save whose local ranks have all staged - or, with `abandon_reason`, one that never will.
struct QueuedSave {
  SaveJob job;
  bool is_coordinator = false;
  // Keeps the memory behind job.files mapped, also when the trainer that made it is gone: shared
  // with its connection.
  std::vector<std::shared_ptr<StagingBuffer>> buffers;
  std::string abandon_reason;
  absl::Time began;     // the first rank's COPYING
  double stall_ms = 0;  // of the slowest rank
};

// One change of state, with the numbers known by then; the rest stay 0.
struct SaveProgress {
  SaveIdentity id;
  SaveState state = SaveState::kCopying;
  std::string reason;
  int64_t bytes = 0;       // of this node; of the whole checkpoint from COMMITTED on
  int64_t node_bytes = 0;  // what the rates are about
  double stall_ms = 0;
  WriteTimes times;
  double seconds = 0;         // since `began`
  double verify_seconds = 0;  // of VERIFIED and DAMAGED
  int64_t free_bytes = 0;
};

struct SaveWriterOptions {
  int node = 0;
  int keep_last = 2;
  int64_t keep_every = 0;
  absl::Duration vote_limit = absl::Minutes(5);
  absl::Duration ended_grace = absl::Seconds(2);
  bool verify_after_commit = true;
  std::string run_dir;
  FileSystem* fs = nullptr;
};

class SaveWriter {
 public:
  // `fence` fails when another attempt owns the run directory. `report` is called on the
  // writer's thread.
  SaveWriter(CommitLog* log, SaveWriterOptions options, std::function<absl::Status()> fence,
             std::function<void(const SaveProgress&)> report);
  ~SaveWriter();  // finishes the queue

  void Enqueue(QueuedSave save);
  // Saves queued or being written.
  int num_pending() const;
  // Gives up waiting and drops the queue: the run directory is no longer ours.
  void Cancel();

 private:
  void Loop();
  void Run(QueuedSave save);
  absl::Status WriteAndDecide(QueuedSave* save, SaveProgress* progress);
  absl::Status AwaitDecision(const QueuedSave& save, SaveProgress* progress);
  void VerifyAndRetire(SaveProgress progress);
  void Report(SaveProgress* progress, SaveState state, absl::Time began);

  CommitLog* const log_;
  const SaveWriterOptions options_;
  const std::function<absl::Status()> fence_;
  const std::function<void(const SaveProgress&)> report_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<QueuedSave> queue_;
  bool is_busy_ = false;
  bool stopping_ = false;
  bool cancelled_ = false;
  std::thread thread_;  // last: starts when everything above is ready
};

}  // namespace anyorder::ckpt
