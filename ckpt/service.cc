#include "ckpt/service.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/commit.h"
#include "ckpt/connection.h"
#include "ckpt/event_log.h"
#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "ckpt/protocol.h"
#include "ckpt/save_assembly.h"
#include "ckpt/save_writer.h"
#include "ckpt/takeover.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

// A trainer that does not read its events for this long is broken.
constexpr int64_t kMaxUnsentBytes = 4 << 20;
// How late limits and the end of background work are noticed.
constexpr absl::Duration kTick = absl::Milliseconds(50);
// After a stop request, ranks in the middle of a copy may still finish it.
constexpr absl::Duration kStopGrace = absl::Seconds(10);
constexpr absl::Duration kFarewell = absl::Seconds(1);

}  // namespace

class Service::Impl {
 public:
  Impl(const ServiceOptions& options, UniqueFd wake, EventLog event_log)
      : options_(options),
        wake_(std::move(wake)),
        event_log_(std::move(event_log)),
        commit_log_(options.fs, options.run_dir, options.num_writer_threads),
        assembly_(options.node) {}
  ~Impl();

  absl::Status Start();
  absl::Status Run();
  void RequestStop();
  void RequestStopAfterTrainers() { stop_after_trainers_ = true; }  // seen within kTick
  const std::string& socket_path() const { return options_.socket_path; }

 private:
  // Main thread
  void PollSockets();
  void Accept();
  void StopListening();
  void ServeConnection(Connection* connection);
  void Handle(Connection* connection, Message* message);
  void HandleHello(Connection* connection, const Message& message);
  void HandleRegister(Connection* connection, Message* message);
  void HandleBegin(Connection* connection, const Message& message);
  void HandleStage(Connection* connection, const Message& message);
  absl::Status StageFile(Connection* connection, const Message& message);
  void HandleShutdown(Connection* connection, const Message& message);
  void CloseBroken();
  void MoveDecidedSaves();
  void PublishProgress();
  void Publish(const SaveProgress& progress);
  void FreeBuffers(int64_t generation);
  void Reply(Connection* connection, MessageType type, int64_t generation, const absl::Status& s);
  bool ShouldExit();
  int num_trainers() const;
  SaveIdentity IdentityOf(const Connection& connection, const Message& message) const;

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
  std::unique_ptr<Lease> lease_;  // of node 0
  UniqueFd listener_;
  std::list<Connection> connections_;
  std::unique_ptr<SaveWriter> writer_;
  bool had_trainer_ = false;
  absl::Time last_busy_ = absl::Now();
  absl::Time stop_since_ = absl::InfiniteFuture();
  std::atomic<bool> stop_requested_ = false;  // these two also by signal handlers
  std::atomic<bool> stop_after_trainers_ = false;

  std::mutex mutex_;  // below
  std::vector<SaveProgress> progress_;
  absl::Status lease_fault_;
  bool closing_ = false;
  std::condition_variable closing_changed_;
  std::thread lease_thread_;
};

Service::Impl::~Impl() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  closing_changed_.notify_all();
  if (lease_thread_.joinable()) lease_thread_.join();
  writer_.reset();
  StopListening();
}

// Before the lease is released: afterwards the path may already be the next service's.
void Service::Impl::StopListening() {
  if (!listener_.valid()) return;
  unlink(options_.socket_path.c_str());
  listener_ = UniqueFd();
}

absl::Status Service::Impl::Start() {
  ANYORDER_ASSIGN_OR_RETURN(lease_, TakeOrAwaitLease(options_));
  ANYORDER_RETURN_IF_ERROR(commit_log_.PrepareRunDirectory());
  if (lease_ != nullptr)
    TidyUpAfterDeadStarts(
        options_, [this] { return CheckFence(); }, &commit_log_, &event_log_);
  ANYORDER_ASSIGN_OR_RETURN(listener_, ListenOn(options_.socket_path));
  SaveWriterOptions writer;
  writer.node = options_.node;
  writer.keep_last = options_.keep_last;
  writer.keep_every = options_.keep_every;
  writer.vote_limit = options_.vote_limit;
  writer.ended_grace = options_.ended_grace;
  writer.verify_after_commit = options_.verify_after_commit;
  writer.run_dir = options_.run_dir;
  writer.fs = options_.fs;
  writer_ = std::make_unique<SaveWriter>(
      &commit_log_, writer, [this] { return CheckFence(); },
      [this](const SaveProgress& p) { Report(p); });
  lease_thread_ = std::thread([this] { KeepLease(); });
  return absl::OkStatus();
}

// Node 0 must hold its lease; the others must not see a later start's.
absl::Status Service::Impl::CheckFence() {
  if (lease_ != nullptr) return lease_->CheckHeld();
  const absl::StatusOr<LeaseOwner> owner = ReadLease(options_.fs, options_.run_dir);
  if (!owner.ok() || (owner->run_id == options_.run_id && owner->attempt <= options_.attempt)) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat("'", options_.run_dir, "' was taken by ", owner->ToString()));
}

void Service::Impl::KeepLease() {
  auto last_good = std::chrono::steady_clock::now();  // the wall clock may be set while we run
  std::unique_lock<std::mutex> lock(mutex_);
  while (!closing_changed_.wait_for(lock, absl::ToChronoMilliseconds(options_.lease_lifetime / 3),
                                    [this] { return closing_; })) {
    lock.unlock();
    absl::Status held = lease_ != nullptr ? lease_->Renew() : CheckFence();
    // A full disk stops the heartbeat, not the ownership: what counts is the name in the file.
    if (!held.ok() && !absl::IsAborted(held)) held = CheckFence();
    if (held.ok()) last_good = std::chrono::steady_clock::now();
    lock.lock();
    // An unreadable file may be a hiccup of the file system, but not for longer than others wait.
    const auto silent = std::chrono::steady_clock::now() - last_good;
    if (absl::IsAborted(held) || absl::FromChrono(silent) > options_.lease_lifetime) {
      lease_fault_ = absl::AbortedError(held.message());
      RequestStop();
      return;
    }
  }
}

void Service::Impl::RequestStop() {
  stop_requested_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void Service::Impl::Report(const SaveProgress& progress) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    progress_.push_back(progress);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

absl::Status Service::Impl::Run() {
  while (!ShouldExit()) {
    PollSockets();
    assembly_.AbandonBegunBefore(
        absl::Now() - options_.stage_limit,
        absl::StrCat("not all ranks staged within ", absl::FormatDuration(options_.stage_limit)));
    MoveDecidedSaves();
    PublishProgress();
    CloseBroken();
    MoveDecidedSaves();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!lease_fault_.ok()) {
      writer_->Cancel();
      connections_.clear();
      listener_ = UniqueFd();  // the path may be the new owner's by now
      return lease_fault_;
    }
  }
  // Last words: a trainer may be waiting for its COMMITTED.
  const absl::Time farewell = absl::Now() + kFarewell;
  for (Connection& connection : connections_) {
    while (connection.channel.has_unsent() && absl::Now() < farewell &&
           connection.channel.Flush().ok()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  connections_.clear();
  StopListening();
  if (options_.num_nodes > 1) commit_log_.RecordEnd(options_.attempt, options_.node);
  if (lease_ != nullptr) return lease_->Release();
  return absl::OkStatus();
}

bool Service::Impl::ShouldExit() {
  const absl::Time now = absl::Now();
  const bool is_working = assembly_.has_open() || writer_->num_pending() > 0;
  if (is_working || num_trainers() > 0) last_busy_ = now;
  if (stop_after_trainers_ && num_trainers() == 0) stop_requested_ = true;
  if (stop_requested_) {
    stop_since_ = std::min(stop_since_, now);
    if (now - stop_since_ > kStopGrace) {
      assembly_.AbandonBegunBefore(absl::InfiniteFuture(), "the service was told to stop");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    return !is_working && progress_.empty();
  }
  const absl::Duration limit = had_trainer_ ? options_.idle_limit : options_.first_client_limit;
  if (now - last_busy_ <= limit) return false;
  Log(absl::StrCat("no trainer for ", absl::FormatDuration(limit), ": exiting"));
  return true;
}

void Service::Impl::PollSockets() {
  std::vector<pollfd> items = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const Connection& connection : connections_) {
    const short events = connection.channel.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    items.push_back({connection.channel.fd(), events, 0});
  }
  if (poll(items.data(), items.size(), static_cast<int>(absl::ToInt64Milliseconds(kTick))) < 0) {
    return;  // a signal: the loop looks at its flag
  }
  uint64_t count = 0;
  if (items[0].revents != 0) {
    [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
  }
  size_t i = 2;
  for (Connection& connection : connections_) {
    if (items[i++].revents != 0) ServeConnection(&connection);
  }
  if (items[1].revents != 0) Accept();
}

void Service::Impl::Accept() {
  absl::StatusOr<Channel> channel = AcceptChannel(listener_.get());
  if (channel.ok()) connections_.emplace_back(*std::move(channel));
}

void Service::Impl::ServeConnection(Connection* connection) {
  // A failed send is not the end: the peer's last messages may still be there to read.
  connection->channel.Flush().IgnoreError();
  while (connection->fault.ok()) {
    absl::StatusOr<std::optional<Message>> message = connection->channel.TryReceive();
    if (!message.ok()) {
      connection->fault = message.status();
    } else if (!message->has_value()) {
      return;
    } else {
      Handle(connection, &**message);
    }
  }
}

void Service::Impl::Handle(Connection* connection, Message* message) {
  const bool is_ours = message->run_id == options_.run_id && message->attempt == options_.attempt;
  if (!is_ours) {
    const std::string what =
        absl::StrCat("this service serves run '", options_.run_id, "' attempt ", options_.attempt,
                     ", not run '", message->run_id, "' attempt ", message->attempt);
    LogWarning(absl::StrCat("dropped a stale message: ", what));
    if (message->type == MessageType::kHello) {
      Reply(connection, MessageType::kWelcome, 0, absl::FailedPreconditionError(what));
    } else if (message->type == MessageType::kShutdown) {
      Reply(connection, MessageType::kShuttingDown, 0, absl::FailedPreconditionError(what));
    }
    return;
  }
  if (message->type == MessageType::kShutdown) return HandleShutdown(connection, *message);
  if (message->type == MessageType::kHello) return HandleHello(connection, *message);
  if (!connection->is_trainer) {
    connection->fault = absl::DataLossError("the first message was not Hello");
  } else if (message->type == MessageType::kRegister) {
    HandleRegister(connection, message);
  } else if (message->type == MessageType::kBegin) {
    HandleBegin(connection, *message);
  } else if (message->type == MessageType::kStage) {
    HandleStage(connection, *message);
  } else {
    connection->fault = absl::DataLossError("a trainer sent a message of the service");
  }
}

void Service::Impl::HandleHello(Connection* connection, const Message& message) {
  if (message.rank >= message.world_size || message.node != options_.node ||
      message.num_nodes != options_.num_nodes || message.local_world_size < 1 ||
      message.local_world_size > message.world_size || message.world_size > 1 << 20) {
    Reply(connection, MessageType::kWelcome, 0,
          absl::FailedPreconditionError(
              absl::StrCat("rank ", message.rank, " of ", message.world_size, " on node ",
                           message.node, " of ", message.num_nodes, " came to the service of node ",
                           options_.node, " of ", options_.num_nodes)));
    return;
  }
  for (Connection& other : connections_) {
    if (&other != connection && other.is_trainer && other.rank == message.rank) {
      other.fault = absl::UnavailableError("the rank connected again");
    }
  }
  connection->is_trainer = true;
  connection->rank = static_cast<int>(message.rank);
  connection->world_size = static_cast<int>(message.world_size);
  connection->local_world_size = static_cast<int>(message.local_world_size);
  had_trainer_ = true;
  assembly_.RankCame(connection->rank);
  Reply(connection, MessageType::kWelcome, 0, absl::OkStatus());
}

void Service::Impl::HandleRegister(Connection* connection, Message* message) {
  absl::Status status;
  if (message->buffer >= kNumBuffers || connection->buffers[message->buffer].generation != 0) {
    status = absl::FailedPreconditionError("this buffer does not exist or is in use");
  } else {
    absl::StatusOr<std::unique_ptr<StagingBuffer>> memory =
        StagingBuffer::Map(std::move(message->fd), message->bytes);
    status = memory.status();
    if (memory.ok()) connection->buffers[message->buffer].memory = *std::move(memory);
  }
  Reply(connection, MessageType::kRegistered, 0, status);
}

SaveIdentity Service::Impl::IdentityOf(const Connection& connection, const Message& message) const {
  return {options_.run_id, options_.attempt,      message.generation,
          message.step,    connection.world_size, options_.num_nodes};
}

void Service::Impl::HandleBegin(Connection* connection, const Message& message) {
  if (message.buffer >= kNumBuffers || connection->buffers[message.buffer].memory == nullptr ||
      connection->buffers[message.buffer].generation != 0 ||
      message.generation / kGenerationsPerAttempt != options_.attempt) {
    connection->fault = absl::DataLossError("Begin names a busy buffer or a foreign generation");
    return;
  }
  if (stop_requested_) return;  // the answer to Stage says so
  const SaveIdentity id = IdentityOf(*connection, message);
  const absl::StatusOr<bool> is_first =
      assembly_.Begin(id, connection->rank, connection->local_world_size, absl::Now());
  if (!is_first.ok()) return;  // already decided: the answer to Stage gives the reason
  connection->buffers[message.buffer].generation = message.generation;
  if (!*is_first) return;
  SaveProgress copying;
  copying.id = id;
  copying.state = "COPYING";
  Publish(copying);
}

absl::Status Service::Impl::StageFile(Connection* connection, const Message& message) {
  if (message.buffer >= kNumBuffers) return absl::InvalidArgumentError("no such buffer");
  const Connection::Buffer& buffer = connection->buffers[message.buffer];
  const SaveIdentity id = IdentityOf(*connection, message);
  if (!message.reason.empty()) return assembly_.GiveUp(id, message.reason);
  StagedRank staged;
  staged.buffer = buffer.memory;
  staged.metadata = message.metadata;
  staged.copy_ms = message.copy_ms;
  staged.file.rank = connection->rank;
  staged.file.bytes = message.bytes;
  ANYORDER_ASSIGN_OR_RETURN(staged.file.crcs, CrcsFromHex(message.crcs));
  if (buffer.memory == nullptr || message.bytes > buffer.memory->bytes() ||
      static_cast<int64_t>(staged.file.crcs.size()) != NumCrcChunks(message.bytes)) {
    return absl::InvalidArgumentError("size or CRCs do not fit the buffer");
  }
  staged.file.data = buffer.memory->data();
  const absl::string_view bytes(reinterpret_cast<const char*>(buffer.memory->data()),
                                static_cast<size_t>(message.bytes));
  const std::string name = RankFileName(connection->rank, id.world_size);
  ANYORDER_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                            ParseSafetensorsHeader(bytes, message.bytes, name));
  ANYORDER_ASSIGN_OR_RETURN(staged.file.pieces, PiecesOf(header, name));
  return assembly_.Stage(id, connection->rank, std::move(staged));
}

void Service::Impl::HandleStage(Connection* connection, const Message& message) {
  absl::Status status = StageFile(connection, message);
  if (!status.ok() && stop_requested_) {
    status = absl::FailedPreconditionError("the service is shutting down");
  }
  if (!status.ok() && message.buffer < kNumBuffers)
    connection->buffers[message.buffer].generation = 0;
  Reply(connection, MessageType::kStaged, message.generation, status);
}

void Service::Impl::HandleShutdown(Connection* connection, const Message& message) {
  absl::Status status;
  if (message.only_if_idle && num_trainers() > 0) {
    status = absl::FailedPreconditionError(
        absl::StrCat(num_trainers(), " trainers are connected to it"));
  } else {
    RequestStop();
  }
  Reply(connection, MessageType::kShuttingDown, 0, status);
}

void Service::Impl::Reply(Connection* connection, MessageType type, int64_t generation,
                          const absl::Status& status) {
  Message reply;
  reply.type = type;
  reply.run_id = options_.run_id;
  reply.attempt = options_.attempt;
  reply.generation = generation;
  reply.ok = status.ok();
  reply.reason = std::string(status.message());
  connection->channel.Post(reply).IgnoreError();
}

int Service::Impl::num_trainers() const {
  return static_cast<int>(std::count_if(connections_.begin(), connections_.end(),
                                        [](auto& c) { return c.is_trainer && c.fault.ok(); }));
}

void Service::Impl::CloseBroken() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (it->channel.unsent_bytes() > kMaxUnsentBytes) {
      it->fault = absl::UnavailableError("it does not read its events");
    }
    if (it->fault.ok()) {
      ++it;
      continue;
    }
    if (absl::IsDataLoss(it->fault)) {
      LogWarning(absl::StrCat("closed a connection: ", it->fault.message()));
    }
    const int rank = it->is_trainer ? it->rank : -1;
    it = connections_.erase(it);
    if (rank < 0) continue;
    assembly_.RankGone(rank);
    // Its new connection may have come before the old one was seen to be broken.
    const bool is_back = std::any_of(connections_.begin(), connections_.end(), [&](auto& other) {
      return other.is_trainer && other.rank == rank;
    });
    if (is_back) assembly_.RankCame(rank);
  }
  // Ranks that never came cannot be told from ranks that are late, unless nobody is left.
  if (assembly_.has_open() && num_trainers() == 0) {
    assembly_.AbandonBegunBefore(absl::InfiniteFuture(), "all trainers went away");
  }
}

void Service::Impl::MoveDecidedSaves() {
  for (QueuedSave& save : assembly_.TakeDecided()) {
    if (save.abandon_reason.empty()) {
      SaveProgress staged;
      staged.id = save.job.id;
      staged.state = "STAGED";
      for (const StagedFile& file : save.job.files)
        staged.bytes += file.bytes;
      staged.node_bytes = staged.bytes;
      staged.stall_ms = save.stall_ms;
      staged.seconds = absl::ToDoubleSeconds(absl::Now() - save.began);
      Publish(staged);
    }
    writer_->Enqueue(std::move(save));
  }
}

void Service::Impl::PublishProgress() {
  std::vector<SaveProgress> progress;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    progress.swap(progress_);
  }
  for (const SaveProgress& item : progress) {
    if (item.state == "DURABLE" || item.state == "ABANDONED") FreeBuffers(item.id.generation);
    Publish(item);
  }
}

void Service::Impl::FreeBuffers(int64_t generation) {
  for (Connection& connection : connections_) {
    for (size_t i = 0; i < connection.buffers.size(); ++i) {
      if (connection.buffers[i].generation != generation) continue;
      connection.buffers[i].generation = 0;
      Message free;
      free.type = MessageType::kBufferFree;
      free.run_id = options_.run_id;
      free.attempt = options_.attempt;
      free.buffer = static_cast<int64_t>(i);
      free.generation = generation;
      connection.channel.Post(free).IgnoreError();
    }
  }
}

void Service::Impl::Publish(const SaveProgress& progress) {
  event_log_.Write(progress, assembly_.newest_step() - progress.id.step);
  Message event;
  event.type = MessageType::kEvent;
  event.run_id = options_.run_id;
  event.attempt = options_.attempt;
  event.generation = progress.id.generation;
  event.step = progress.id.step;
  event.state = progress.state;
  event.reason = progress.reason;
  event.bytes = progress.bytes;
  event.seconds = progress.state == "COMMITTED" ? progress.seconds : 0;
  for (Connection& connection : connections_) {
    if (connection.is_trainer) connection.channel.Post(event).IgnoreError();
  }
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() = default;

absl::StatusOr<std::unique_ptr<Service>> Service::Start(const ServiceOptions& options) {
  ANYORDER_RETURN_IF_ERROR(options.Validate());
  ServiceOptions resolved = options;
  if (resolved.socket_path.empty()) {
    resolved.socket_path = DefaultSocketPath(options.run_dir, options.node);
  }
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus("eventfd", options.run_dir);
  ANYORDER_ASSIGN_OR_RETURN(EventLog event_log,
                            EventLog::Open(options.fs, options.run_dir, options.node));
  auto impl = std::make_unique<Impl>(resolved, std::move(wake), std::move(event_log));
  ANYORDER_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

const std::string& Service::socket_path() const {
  return impl_->socket_path();
}
absl::Status Service::Run() {
  return impl_->Run();
}
void Service::RequestStop() {
  impl_->RequestStop();
}
void Service::RequestStopAfterTrainers() {
  impl_->RequestStopAfterTrainers();
}

}  // namespace anyorder::ckpt
