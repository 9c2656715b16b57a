// The service's part in knowing who is alive (core/liveness): reads the pages of its ranks, tells
// the launcher, and ends the ranks when the launcher says so or has been silent for long.
//
// A thread of its own, which never touches a file system (not even a log's), so that a stalled one
// is told from a dead node.

#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

#include "ckpt/launcher_endpoint.h"
#include "ckpt/protocol.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/liveness/node_report.h"

namespace anyorder::ckpt {

struct HealthRelayOptions {
  std::string run_id;
  int64_t attempt = 0;
  int node = 0;
  std::optional<LauncherEndpoint> launcher;  // none: nobody is told anything
  absl::Duration period = absl::Milliseconds(250);
  // A launcher that is silent for so long is called again: a connection that was cut may not be
  // noticed otherwise. It speaks every second.
  absl::Duration reconnect_after = absl::Seconds(5);
};

// Thread-safe.
class HealthRelay {
 public:
  explicit HealthRelay(HealthRelayOptions options);
  ~HealthRelay();
  HealthRelay(const HealthRelay&) = delete;
  HealthRelay& operator=(const HealthRelay&) = delete;

  // The connection that a rank's Watch came on, and its page.
  void Adopt(Channel channel, UniqueFd page) {
    const MutexLock lock(&mutex_);
    adopted_.push_back({std::move(channel), std::move(page), {{}, /*is_connected=*/true}, false});
  }
  int num_ranks() const { return num_ranks_; }  // connected ones
  // The launcher may start the ranks. It is told at once.
  void SetServing() {
    const MutexLock lock(&mutex_);
    is_serving_ = is_due_ = true;
  }
  // Around a call into the run directory's file system, by one thread.
  void BeginFileCall() { file_call_ = absl::ToUnixNanos(MonotonicNow()); }
  void EndFileCall() { file_call_ = 0; }
  // What there is to log since the last call.
  std::vector<std::string> TakeNotes() {
    const MutexLock lock(&mutex_);
    return std::exchange(notes_, {});
  }

 private:
  struct Rank {
    Channel channel;
    UniqueFd page;
    liveness::RankReport last;
    bool is_told = false;  // to end
  };

  void Run();
  void ReadRanks();
  void TalkToLauncher(absl::Time now);
  void ConnectLauncher();
  absl::Status Exchange(absl::Time now);
  void EndRanksIfAsked();
  liveness::NodeReport Describe(absl::Time now) const;
  void Note(std::string note) {
    const MutexLock lock(&mutex_);
    notes_.push_back(std::move(note));
  }
  absl::Status Post(Channel& channel, MessageBody body) const {
    return channel.Post({options_.run_id, options_.attempt, std::move(body)});
  }

  const HealthRelayOptions options_;
  const std::string host_;
  std::atomic<int64_t> file_call_ = 0;  // when it began; 0: none
  std::atomic<int> num_ranks_ = 0;

  // The thread's own.
  std::list<Rank> ranks_;
  std::optional<Channel> launcher_;
  size_t next_address_ = 0;
  absl::Time last_look_ = MonotonicNow();
  absl::Duration silence_;  // of the launcher, own standstills left out
  absl::Duration connected_for_;
  std::string end_reason_;   // why the ranks must end, "" as long as they need not
  bool has_failed_ = false;  // to connect, as noted

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_due_ ABSL_GUARDED_BY(mutex_) = false;  // a report, before the period has passed
  std::list<Rank> adopted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::ckpt
