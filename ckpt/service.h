// The checkpoint service of one node: accepts staged snapshots from the local ranks and commits
// them, even if the trainers die. See PROTOCOL.md for the states and the rules.

#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/commit.h"
#include "ckpt/health_relay.h"
#include "ckpt/lease.h"
#include "ckpt/protocol.h"
#include "ckpt/save_assembly.h"
#include "ckpt/save_writer.h"
#include "ckpt/staging_buffer.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/base/network_port.h"
#include "core/base/unique_fd.h"

namespace anyorder::ckpt {

inline constexpr int kNumBuffers = 2;

// What the service knows about one connected trainer.
struct Connection {
  explicit Connection(Channel c) : channel(std::move(c)) {}

  struct Buffer {
    // Shared with the save that was staged in it, which outlives the connection.
    std::shared_ptr<StagingBuffer> memory;
    int64_t generation = 0;  // that uses it; 0: free
  };

  Channel channel;
  bool is_trainer = false;  // has been welcomed
  int rank = -1;
  int world_size = 0;
  int local_world_size = 0;
  std::array<Buffer, kNumBuffers> buffers;
  absl::Status fault;  // not OK: to be closed
};

class Service {
 public:
  // Reports to the launcher that started it, if one did (LauncherEndpointPath), from the begin on.
  // Takes the lease (node 0) or waits for node 0 to have it, removes leftovers of dead starts, and
  // listens. A service of an earlier start that has no trainers is asked to finish and waited for.
  // Errors: InvalidArgument for bad options; AlreadyExists naming the owner if the run directory is
  // in use.
  static absl::StatusOr<std::unique_ptr<Service>> Start(const ServiceOptions& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const std::string& socket_path() const { return options_.socket_path; }

  // Serves until asked to stop or idle for long; what is staged is committed first. Aborted if
  // another attempt took the lease: then nothing more is written.
  absl::Status Run();

  // Async-signal-safe: Run finishes what is staged and returns.
  void RequestStop() {
    stop_requested_ = true;
    Wake();
  }
  // Ends the service once the last connected trainer has left: a scheduler signals trainers and
  // services at the same time, and the trainers' last save is still to come.
  void RequestStopAfterTrainers() { stop_after_trainers_ = true; }

 private:
  Service(const ServiceOptions& options, UniqueFd wake, EventLog event_log);
  absl::Status StartRelay();
  absl::Status Start();
  // Main thread
  void Wake();
  void PollSockets();
  void StopListening();
  void ServeConnection(Connection* connection);
  void Handle(Connection* connection, Message* message);
  void RefuseStale(Connection* connection, const Message& message);
  void Take(Connection* connection, Hello& hello);
  void Take(Connection* connection, Register& message);
  void Take(Connection* connection, Begin& begin);
  void Take(Connection* connection, Stage& stage);
  void Take(Connection* connection, Shutdown& shutdown);
  void Take(Connection* connection, Watch& watch);
  void Take(Connection* connection, auto& other);
  bool IsTrainer(Connection* connection);
  absl::Status StageFile(Connection* connection, const Stage& stage);
  void CloseBroken();
  void MoveDecidedSaves();
  void PublishProgress();
  void Publish(const SaveProgress& progress);
  void FreeBuffers(int64_t generation);
  void Post(Connection* connection, MessageBody body) const {
    const Message message = {options_.run_id, options_.attempt, std::move(body)};
    connection->channel.Post(message).IgnoreError();
  }
  bool ShouldExit();
  int num_trainers() const {
    return static_cast<int>(std::count_if(connections_.begin(), connections_.end(),
                                          [](auto& c) { return c.is_trainer && c.fault.ok(); }));
  }
  SaveIdentity IdentityOf(const Connection& connection, int64_t generation, int64_t step) const {
    return {options_.run_id,       options_.attempt,  generation, step,
            connection.world_size, options_.num_nodes};
  }

  // Lease thread
  void KeepLease();
  absl::Status CheckFence();

  // Writer thread
  void Report(const SaveProgress& progress);

  ServiceOptions options_;
  UniqueFd wake_;  // eventfd: progress to publish, stop requested, lease lost
  EventLog event_log_;
  CommitLog commit_log_;
  SaveAssembly assembly_;
  std::unique_ptr<HealthRelay> relay_;
  std::unique_ptr<Lease> lease_;  // of node 0
  ListeningSocket listener_;
  std::list<Connection> connections_;
  std::unique_ptr<SaveWriter> writer_;
  bool had_trainer_ = false;
  bool is_coordinator_ = false;  // rank 0 came to this service
  absl::Time last_busy_ = MonotonicNow();
  absl::Time stop_since_ = absl::InfiniteFuture();
  std::atomic<bool> stop_requested_ = false;  // these two also by signal handlers
  std::atomic<bool> stop_after_trainers_ = false;

  Mutex mutex_;
  std::vector<SaveProgress> progress_ ABSL_GUARDED_BY(mutex_);
  absl::Status lease_fault_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread lease_thread_;
};

// How a new start of a run takes over from the one before (takeover.cc).

// Node 0 takes the lease, with what the options know of earlier owners. The others own none (null);
// they wait for node 0 to have it, and work under that. Errors: AlreadyExists naming the
// owner if an earlier service still has trainers; those of Lease::Acquire; DeadlineExceeded.
absl::StatusOr<std::unique_ptr<Lease>> TakeOrAwaitLease(const ServiceOptions& options);

// With the lease in hand: finishes or removes what dead starts left half-made, and writes a
// RECOVERED line for what was finished. A disk that refuses to read or delete it is worth a
// warning, not an end: training matters more. Errors: a save stays where its service could still
// commit it; Aborted if the lease was lost.
absl::Status TidyUpAfterDeadStarts(const ServiceOptions& options,
                                   const std::function<absl::Status()>& fence,
                                   CommitLog* commit_log, EventLog* event_log);

}  // namespace anyorder::ckpt
