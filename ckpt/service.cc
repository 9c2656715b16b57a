#include "ckpt/service.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/layout.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

// A trainer that does not read its events for this long is broken.
constexpr int64_t kMaxUnsentEventBytes = 4 << 20;
// How late limits and the end of background work are noticed.
constexpr absl::Duration kTick = absl::Milliseconds(50);
// After a stop request, ranks in the middle of a copy may still finish it.
constexpr absl::Duration kStopGrace = absl::Seconds(10);
constexpr absl::Duration kLastEventsLimit = absl::Seconds(1);

Answer AnswerOf(const absl::Status& status) {
  return {.ok = status.ok(), .reason = std::string(status.message())};
}

}  // namespace

Service::Service(const ServiceOptions& options, UniqueFd wake, EventLog event_log)
    : options_(options),
      wake_(std::move(wake)),
      event_log_(std::move(event_log)),
      commit_log_(options.fs, options.run_dir, options.num_writer_threads),
      assembly_(options.node) {}

Service::~Service() {
  {
    const MutexLock lock(&mutex_);
    closing_ = true;
  }
  if (lease_thread_.joinable()) lease_thread_.join();
  writer_.reset();
  StopListening();
}

// Before the lease is released: afterwards the path may already be the next service's.
void Service::StopListening() {
  if (!listener_.valid()) return;
  unlink(options_.socket_path.c_str());
  listener_ = ListeningSocket();
}

absl::Status Service::StartRelay() {
  HealthRelayOptions relay;
  relay.run_id = options_.run_id;
  relay.attempt = options_.attempt;
  relay.node = options_.node;
  absl::StatusOr<LauncherEndpoint> launcher =
      ReadLauncherEndpoint(options_.fs, LauncherEndpointPath(options_.run_dir, options_.attempt));
  if (!launcher.ok() && !absl::IsNotFound(launcher.status())) return launcher.status();
  if (launcher.ok()) relay.launcher = *std::move(launcher);
  relay_ = std::make_unique<HealthRelay>(std::move(relay));
  return absl::OkStatus();
}

absl::Status Service::Start() {
  RETURN_IF_ERROR(StartRelay());
  ASSIGN_OR_RETURN(lease_, TakeOrAwaitLease(options_));
  // Recovery may read for many minutes, during which the lease must not look abandoned.
  lease_thread_ = std::thread([this] { KeepLease(); });
  RETURN_IF_ERROR(commit_log_.PrepareRunDirectory());
  if (lease_ != nullptr) {
    RETURN_IF_ERROR(TidyUpAfterDeadStarts(
        options_, [this] { return CheckFence(); }, &commit_log_, &event_log_));
    // The socket's path may be the next owner's by now.
    if (const absl::Status held = CheckFence(); absl::IsAborted(held)) return held;
  }
  ASSIGN_OR_RETURN(listener_, ListenOn(options_.socket_path));
  writer_ = std::make_unique<SaveWriter>(
      &commit_log_, options_, [this] { return CheckFence(); },
      [this](const SaveProgress& p) { Report(p); });
  relay_->SetServing();
  return absl::OkStatus();
}

// OK if LEASE names this start. Aborted: it names another one, and nothing more may be written.
// Other errors: it cannot be read now, so nothing may be committed now.
absl::Status Service::CheckFence() {
  if (lease_ != nullptr) return lease_->CheckHeld();
  ASSIGN_OR_RETURN(const LeaseOwner owner, ReadLease(options_.fs, options_.run_dir));
  if (owner.run_id == options_.run_id && owner.attempt == options_.attempt) return absl::OkStatus();
  return Aborted("'", options_.run_dir, "' was taken by ", owner.ToString());
}

void Service::KeepLease() {
  absl::Time last_good = MonotonicNow();
  const auto is_closing = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closing_; };
  const MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(is_closing, options_.lease_lifetime / 3)) {
    mutex_.Unlock();
    relay_->BeginFileCall();
    absl::Status held = lease_ != nullptr ? lease_->Renew() : CheckFence();
    // A full disk stops the heartbeat, not the ownership: what counts is the name in the file.
    if (!held.ok() && !absl::IsAborted(held)) held = CheckFence();
    relay_->EndFileCall();
    // Node 0 may have ended in order and released it; the other nodes finish their saves.
    if (held.ok() || absl::IsNotFound(held)) last_good = MonotonicNow();
    mutex_.Lock();
    // A file system that does not answer for a while has not given the run to anybody else.
    if (absl::IsAborted(held) || MonotonicNow() - last_good > options_.file_system_limit) {
      lease_fault_ = absl::AbortedError(held.message());
      RequestStop();
      return;
    }
  }
}

void Service::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void Service::Report(const SaveProgress& progress) {
  {
    const MutexLock lock(&mutex_);
    progress_.push_back(progress);
  }
  Wake();
}

absl::Status Service::Run() {
  while (!ShouldExit()) {
    PollSockets();
    assembly_.AbandonBegunBefore(
        MonotonicNow() - options_.stage_limit,
        absl::StrCat("not all ranks staged within ", absl::FormatDuration(options_.stage_limit)));
    MoveDecidedSaves();
    PublishProgress();
    CloseBroken();
    MoveDecidedSaves();
    for (const std::string& note : relay_->TakeNotes()) LogWarning(note);
    const MutexLock lock(&mutex_);
    if (!lease_fault_.ok()) {
      writer_->Cancel();
      connections_.clear();
      listener_ = ListeningSocket();  // the path may be the new owner's by now
      return lease_fault_;
    }
  }
  // A trainer may be waiting for its COMMITTED event.
  const absl::Time deadline = MonotonicNow() + kLastEventsLimit;
  for (Connection& connection : connections_) {
    while (connection.channel.has_unsent() && MonotonicNow() < deadline &&
           connection.channel.Flush().ok()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  connections_.clear();
  StopListening();
  if (options_.num_nodes > 1)
    commit_log_.RecordEnd(options_.attempt, options_.node, is_coordinator_);
  if (lease_ != nullptr) return lease_->Release();
  return absl::OkStatus();
}

bool Service::ShouldExit() {
  const absl::Time now = MonotonicNow();
  const bool is_working = assembly_.has_open() || writer_->num_pending() > 0;
  if (is_working || num_trainers() > 0 || relay_->num_ranks() > 0) last_busy_ = now;
  if (stop_after_trainers_ && num_trainers() == 0) stop_requested_ = true;
  if (stop_requested_) {
    stop_since_ = std::min(stop_since_, now);
    if (now - stop_since_ > kStopGrace)
      assembly_.AbandonBegunBefore(absl::InfiniteFuture(), "the service was told to stop");
    const MutexLock lock(&mutex_);
    return !is_working && progress_.empty();
  }
  const absl::Duration limit = had_trainer_ ? options_.idle_limit : options_.first_client_limit;
  if (now - last_busy_ <= limit) return false;
  Log(absl::StrCat("no trainer for ", absl::FormatDuration(limit), ": exiting"));
  return true;
}

void Service::PollSockets() {
  std::vector<pollfd> items = {{wake_.get(), POLLIN, 0}, listener_.PollItem()};
  for (const Connection& connection : connections_) {
    const short events = connection.channel.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    items.push_back({connection.channel.fd(), events, 0});
  }
  if (poll(items.data(), items.size(), static_cast<int>(absl::ToInt64Milliseconds(kTick))) < 0) {
    return;  // a signal: the loop looks at its flag
  }
  uint64_t count = 0;
  if (items[0].revents != 0) [[maybe_unused]]
    const ssize_t got = read(wake_.get(), &count, sizeof(count));
  size_t i = 2;
  for (Connection& connection : connections_) {
    if (items[i++].revents != 0) ServeConnection(&connection);
  }
  if (items[1].revents == 0) return;
  absl::StatusOr<Channel> channel = AcceptChannel(listener_);
  if (channel.ok()) connections_.emplace_back(*std::move(channel));
}

void Service::ServeConnection(Connection* connection) {
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

void Service::Handle(Connection* connection, Message* message) {
  if (message->run_id != options_.run_id || message->attempt != options_.attempt)
    return RefuseStale(connection, *message);
  std::visit([&](auto& body) { Take(connection, body); }, message->body);
}

void Service::RefuseStale(Connection* connection, const Message& message) {
  const std::string what =
      absl::StrCat("this service serves run '", options_.run_id, "' attempt ", options_.attempt,
                   ", not run '", message.run_id, "' attempt ", message.attempt);
  LogWarning(absl::StrCat("dropped a stale message: ", what));
  if (std::holds_alternative<Hello>(message.body)) {
    Post(connection, Welcome{{.ok = false, .reason = what}});
  } else if (std::holds_alternative<Shutdown>(message.body)) {
    Post(connection, ShuttingDown{{.ok = false, .reason = what}});
  }
}

// Whether it has been welcomed; its connection is closed if not.
bool Service::IsTrainer(Connection* connection) {
  if (!connection->is_trainer)
    connection->fault = absl::DataLossError("the first message was not Hello");
  return connection->is_trainer;
}

void Service::Take(Connection* connection, auto&) {
  if (IsTrainer(connection))
    connection->fault = absl::DataLossError("a trainer sent a message of the service");
}

void Service::Take(Connection* connection, Hello& hello) {
  if (hello.rank >= hello.world_size || hello.node != options_.node ||
      hello.num_nodes != options_.num_nodes || hello.local_world_size < 1 ||
      hello.local_world_size > hello.world_size || hello.world_size > 1 << 20) {
    return Post(connection,
                Welcome{AnswerOf(FailedPrecondition(
                    "rank ", hello.rank, " of ", hello.world_size, " on node ", hello.node, " of ",
                    hello.num_nodes, " came to the service of node ", options_.node, " of ",
                    options_.num_nodes))});
  }
  for (Connection& other : connections_) {
    if (&other != connection && other.is_trainer && other.rank == hello.rank)
      other.fault = absl::UnavailableError("the rank connected again");
  }
  connection->is_trainer = true;
  connection->rank = static_cast<int>(hello.rank);
  connection->world_size = static_cast<int>(hello.world_size);
  connection->local_world_size = static_cast<int>(hello.local_world_size);
  had_trainer_ = true;
  is_coordinator_ = is_coordinator_ || connection->rank == 0;
  assembly_.RankCame(connection->rank);
  Post(connection, Welcome{AnswerOf(absl::OkStatus())});
}

void Service::Take(Connection* connection, Register& message) {
  if (!IsTrainer(connection)) return;
  absl::Status status;
  if (message.buffer >= kNumBuffers || connection->buffers[message.buffer].generation != 0) {
    status = absl::FailedPreconditionError("this buffer does not exist or is in use");
  } else {
    absl::StatusOr<std::unique_ptr<StagingBuffer>> memory =
        StagingBuffer::Map(std::move(message.fd), message.bytes);
    status = memory.status();
    if (memory.ok()) connection->buffers[message.buffer].memory = *std::move(memory);
  }
  Post(connection, Registered{AnswerOf(status)});
}

void Service::Take(Connection* connection, Begin& begin) {
  if (!IsTrainer(connection)) return;
  if (begin.buffer >= kNumBuffers || connection->buffers[begin.buffer].memory == nullptr ||
      connection->buffers[begin.buffer].generation != 0 ||
      begin.generation / kGenerationsPerAttempt != options_.attempt) {
    connection->fault = absl::DataLossError("Begin names a busy buffer or a foreign generation");
    return;
  }
  if (stop_requested_) return;  // the answer to Stage says so
  const SaveIdentity id = IdentityOf(*connection, begin.generation, begin.step);
  const absl::StatusOr<bool> is_first =
      assembly_.Begin(id, connection->rank, connection->local_world_size, MonotonicNow());
  if (!is_first.ok()) return;  // already decided: the answer to Stage gives the reason
  connection->buffers[begin.buffer].generation = begin.generation;
  if (*is_first) Publish({.id = id, .state = SaveState::kCopying});
}

absl::Status Service::StageFile(Connection* connection, const Stage& stage) {
  if (stage.buffer >= kNumBuffers) return absl::InvalidArgumentError("no such buffer");
  const Connection::Buffer& buffer = connection->buffers[stage.buffer];
  const SaveIdentity id = IdentityOf(*connection, stage.generation, stage.step);
  if (!stage.reason.empty()) return assembly_.GiveUp(id, stage.reason);
  StagedRank staged;
  staged.buffer = buffer.memory;
  staged.metadata = stage.metadata;
  staged.copy_ms = stage.copy_ms;
  staged.file.rank = connection->rank;
  staged.file.bytes = stage.bytes;
  ASSIGN_OR_RETURN(staged.file.crcs, CrcsFromHex(stage.crcs));
  if (buffer.memory == nullptr || stage.bytes > buffer.memory->bytes() ||
      static_cast<int64_t>(staged.file.crcs.size()) != NumCrcChunks(stage.bytes)) {
    return absl::InvalidArgumentError("size or CRCs do not fit the buffer");
  }
  staged.file.data = buffer.memory->data();
  const absl::string_view bytes(reinterpret_cast<const char*>(buffer.memory->data()),
                                static_cast<size_t>(stage.bytes));
  const std::string name = RankFileName(connection->rank, id.world_size);
  ASSIGN_OR_RETURN(const SafetensorsHeader header,
                   ParseSafetensorsHeader(bytes, stage.bytes, name));
  ASSIGN_OR_RETURN(staged.file.pieces, PiecesOf(header, name));
  return assembly_.Stage(id, connection->rank, std::move(staged));
}

void Service::Take(Connection* connection, Stage& stage) {
  if (!IsTrainer(connection)) return;
  absl::Status status = StageFile(connection, stage);
  if (!status.ok() && stop_requested_)
    status = absl::FailedPreconditionError("the service is shutting down");
  if (!status.ok() && stage.buffer < kNumBuffers) connection->buffers[stage.buffer].generation = 0;
  Post(connection, Staged{AnswerOf(status)});
}

void Service::Take(Connection* connection, Shutdown& shutdown) {
  absl::Status status;
  if (shutdown.only_if_idle && num_trainers() > 0) {
    status = FailedPrecondition(num_trainers(), " trainers are connected to it");
  } else {
    RequestStop();
  }
  Post(connection, ShuttingDown{AnswerOf(status)});
}

// From here on it is no connection of this thread, which may wait for a file.
void Service::Take(Connection* connection, Watch& watch) {
  relay_->Adopt(std::move(connection->channel), std::move(watch.fd));
  connection->fault = absl::UnavailableError("it is the relay's");
}

void Service::CloseBroken() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (it->channel.unsent_bytes() > kMaxUnsentEventBytes)
      it->fault = absl::UnavailableError("it does not read its events");
    if (it->fault.ok()) {
      ++it;
      continue;
    }
    if (absl::IsDataLoss(it->fault))
      LogWarning(absl::StrCat("closed a connection: ", it->fault.message()));
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
  if (assembly_.has_open() && num_trainers() == 0)
    assembly_.AbandonBegunBefore(absl::InfiniteFuture(), "all trainers disconnected");
}

void Service::MoveDecidedSaves() {
  for (QueuedSave& save : assembly_.TakeDecided()) {
    if (save.abandon_reason.empty()) {
      SaveProgress staged{.id = save.job.id,
                          .state = SaveState::kStaged,
                          .stall_ms = save.stall_ms,
                          .seconds = absl::ToDoubleSeconds(MonotonicNow() - save.began)};
      for (const StagedFile& file : save.job.files) staged.bytes += file.bytes;
      staged.node_bytes = staged.bytes;
      Publish(staged);
    }
    writer_->Enqueue(std::move(save));
  }
}

void Service::PublishProgress() {
  std::vector<SaveProgress> progress;
  {
    const MutexLock lock(&mutex_);
    progress.swap(progress_);
  }
  for (const SaveProgress& item : progress) {
    if (item.state == SaveState::kDurable || item.state == SaveState::kAbandoned)
      FreeBuffers(item.id.generation);
    Publish(item);
  }
}

void Service::FreeBuffers(int64_t generation) {
  for (Connection& connection : connections_) {
    for (size_t i = 0; i < connection.buffers.size(); ++i) {
      if (connection.buffers[i].generation != generation) continue;
      connection.buffers[i].generation = 0;
      Post(&connection, BufferFree{static_cast<int64_t>(i), generation});
    }
  }
}

void Service::Publish(const SaveProgress& progress) {
  event_log_.Write(progress, assembly_.newest_step() - progress.id.step);
  const bool is_committed = progress.state == SaveState::kCommitted;
  const SaveEvent event = {progress.id.step, progress.id.generation,
                           progress.state,   progress.reason,
                           progress.bytes,   is_committed ? progress.seconds : 0};
  for (Connection& connection : connections_) {
    if (connection.is_trainer) Post(&connection, event);
  }
}

absl::Status ServiceOptions::Validate() const {
  if (run_dir.empty() || run_id.empty() || attempt < 1 || node < 0 || node >= num_nodes ||
      keep_last < 2 || keep_every < 0 || num_writer_threads < 1) {
    return InvalidArgument(
        "checkpoint service needs run_dir, run_id, attempt >= 1, 0 <= node < "
        "num_nodes, keep_last >= 2, keep_every >= 0; got run_dir '",
        run_dir, "', run_id '", run_id, "', attempt ", attempt, ", node ", node, " of ", num_nodes,
        ", keep_last ", keep_last, ", keep_every ", keep_every);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Service>> Service::Start(const ServiceOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  ServiceOptions resolved = options;
  if (resolved.socket_path.empty())
    resolved.socket_path = DefaultSocketPath(options.run_dir, options.node);
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus("eventfd", options.run_dir);
  ASSIGN_OR_RETURN(EventLog event_log, EventLog::Open(options.fs, options.run_dir, options.node));
  std::unique_ptr<Service> service(new Service(resolved, std::move(wake), std::move(event_log)));
  RETURN_IF_ERROR(service->Start());
  return service;
}

}  // namespace anyorder::ckpt
