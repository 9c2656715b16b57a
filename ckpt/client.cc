#include "ckpt/client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "ckpt/staging_buffer.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/machine_memory.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/unicode.h"

namespace anyorder::ckpt {
namespace {

// The service never waits for a disk before it answers, so this long means that it hangs.
constexpr absl::Duration kAnswerLimit = absl::Seconds(20);
// Once lost, a service that is back answers at once; one that hangs must not cost every step of
// training.
constexpr absl::Duration kReconnectLimit = absl::Milliseconds(200);
constexpr int kMostCopyThreads = 4;  // memory gives no more to more of them
constexpr int64_t kBufferUnit = int64_t{2} << 20;
// The header may grow by a few digits from one save to the next.
constexpr int64_t kHeaderRoom = int64_t{64} << 10;

absl::Status StatusOf(const Answer& answer) {
  return answer.ok ? absl::OkStatus() : absl::FailedPreconditionError(answer.reason);
}

// All of it.
bool HasData(const TensorRange& range) {
  int64_t elements = range.begin;
  for (const MemoryPiece& piece : PiecesOf(range)) {
    if (piece.data == nullptr || piece.elements < 0) return false;
    elements += piece.elements;
  }
  return elements == range.end;
}

absl::Status CheckRanges(const std::vector<TensorRange>& ranges, const std::string& metadata) {
  for (const TensorRange& range : ranges) {
    const int64_t count = range.global_shape.num_elements();
    const bool has_data = HasData(range);
    if (range.begin < 0 || range.end < range.begin || range.end > count || !has_data ||
        range.name.empty() || !IsUtf8(range.name)) {
      return InvalidArgument("checkpoint tensor '", range.name, "': range [", range.begin, ", ",
                             range.end, ") of ", count, " elements, ",
                             has_data ? "with" : "without", " data, is invalid");
    }
  }
  if (!IsUtf8(metadata)) return absl::InvalidArgumentError("checkpoint metadata is not UTF-8");
  for (const TensorRange& range : ranges) {
    if (!IsUtf8(range.contents))
      return InvalidArgument("contents of tensor '", range.name, "' are not UTF-8");
  }
  return absl::OkStatus();
}

// All ranks of a node copy at the same time.
int CopyThreads(const ClientOptions& options) {
  if (options.copy_threads > 0) return options.copy_threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / options.ranks_of_node(), 1, kMostCopyThreads);
}

}  // namespace

Client::Client(const ClientOptions& options) : options_(options) {
  if (options_.copier != nullptr)
    copy_ = std::make_unique<BackgroundCopy>(*options_.copier, options_.copy_limit);
}

Client::~Client() {
  if (copy_ != nullptr && !copy_->AwaitMemory(absl::Seconds(10))) {
    LogWarning("the device still copies a checkpoint; its staging memory is left to it");
    for (Buffer& buffer : buffers_) buffer.memory.release();
    return;
  }
  for (Buffer& buffer : buffers_) FreeMemory(buffer);
}

void Client::FreeMemory(Buffer& buffer) {
  if (buffer.memory != nullptr && options_.copier != nullptr)
    options_.copier->Release(buffer.memory->data());
  buffer.memory.reset();
}

absl::Status Client::Connect(absl::Time deadline, absl::Duration answer_limit) {
  const std::string path = options_.socket_path.empty()
                               ? DefaultSocketPath(options_.run_dir, options_.node)
                               : options_.socket_path;
  absl::StatusOr<Channel> channel = ConnectChannel(path);
  // The service may still be starting.
  while (absl::IsUnavailable(channel.status()) && MonotonicNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
    channel = ConnectChannel(path);
  }
  RETURN_IF_ERROR(channel.status());
  channel_ = std::make_unique<Channel>(*std::move(channel));
  const Hello hello = {.rank = options_.rank,
                       .world_size = options_.world_size,
                       .local_world_size = options_.ranks_of_node(),
                       .node = options_.node,
                       .num_nodes = options_.num_nodes};
  absl::Status sent = Send(hello, MonotonicNow() + answer_limit);
  if (sent.ok()) sent = Await<Welcome>(answer_limit);
  for (size_t i = 0; i < buffers_.size() && sent.ok(); ++i) {
    // The lost service may still be writing from a busy buffer: leave that memory to it.
    if (buffers_[i].generation != 0) FreeMemory(buffers_[i]);
    buffers_[i].generation = 0;
    if (buffers_[i].memory != nullptr) sent = RegisterBuffer(static_cast<int>(i));
  }
  if (!sent.ok()) channel_.reset();
  return sent;
}

void Client::LoseService(const absl::Status& why) {
  if (channel_ == nullptr) return;
  LogWarning(absl::StrCat("checkpoint service lost: ", why.message(), "; training continues"));
  channel_.reset();
}

// Receives until a Reply; what comes before it is taken in. A refusal becomes FailedPrecondition.
template <typename Reply>
absl::Status Client::Await(absl::Duration limit) {
  const absl::Time deadline = MonotonicNow() + limit;
  while (true) {
    ASSIGN_OR_RETURN(const Message message, channel_->Receive(deadline));
    if (const auto* reply = std::get_if<Reply>(&message.body)) return StatusOf(*reply);
    Take(message);
  }
}

void Client::Take(const Message& message) {
  if (message.run_id != options_.run_id || message.attempt != options_.attempt) return;
  if (const auto* free = std::get_if<BufferFree>(&message.body); free && free->buffer < 2) {
    Buffer& buffer = buffers_[free->buffer];
    if (buffer.generation == free->generation) buffer.generation = 0;
  } else if (const auto* event = std::get_if<SaveEvent>(&message.body)) {
    Record(*event);
  }
}

void Client::Record(const SaveEvent& event) {
  const bool is_decision =
      event.state == SaveState::kCommitted || event.state == SaveState::kAbandoned;
  const auto known = last_of_step_.find(event.step);
  // The service repeats what this rank gave up.
  if (is_decision && known != last_of_step_.end() && known->second.generation == event.generation &&
      known->second.state == event.state)
    return;
  events_.push_back(event);
  if (is_decision) Remember(event);
}

void Client::Drain() {
  while (channel_ != nullptr) {
    const absl::StatusOr<std::optional<Message>> message = channel_->TryReceive();
    if (!message.ok()) return LoseService(message.status());
    if (!message->has_value()) return;
    Take(**message);
  }
}

int Client::FreeBuffer() const {
  for (int i = 0; i < options_.staged_copies; ++i) {
    if (buffers_[i].generation == 0) return i;
  }
  return -1;
}

bool Client::CanSave(std::string* skip_reason) {
  Drain();
  Advance();
  std::string reason;
  // A launcher may have restarted it; connecting to a socket that nobody serves fails at once. Not
  // while the device writes to a buffer: reconnecting frees it.
  if (channel_ == nullptr && !IsCopying())
    Connect(absl::InfinitePast(), kReconnectLimit).IgnoreError();
  if (channel_ == nullptr) {
    reason = "the checkpoint service is gone";
  } else if (FreeBuffer() < 0) {
    reason = absl::StrCat(
        options_.staged_copies == 1 ? "the staging buffer is" : "both staging buffers are",
        " busy: saves come faster than the disk takes them");
  } else if (IsCopying()) {
    reason = "the save before is still being copied out of the device's memory";
  }
  if (skip_reason != nullptr) *skip_reason = reason;
  return reason.empty();
}

absl::Status Client::RegisterBuffer(int index) {
  const StagingBuffer& memory = *buffers_[index].memory;
  ASSIGN_OR_RETURN(UniqueFd fd, memory.Duplicate());
  RETURN_IF_ERROR(Send(Register{.buffer = index, .bytes = memory.bytes(), .fd = std::move(fd)},
                       MonotonicNow() + kAnswerLimit));
  return Await<Registered>(kAnswerLimit);
}

// Makes every free buffer large enough; a busy one has to wait until it is free.
absl::Status Client::Reserve(int64_t file_bytes) {
  for (int i = 0; i < options_.staged_copies; ++i) {
    Buffer& buffer = buffers_[i];
    if (buffer.generation != 0) continue;
    if (buffer.memory != nullptr && buffer.memory->bytes() >= file_bytes) continue;
    const int64_t bytes = (file_bytes + kHeaderRoom + kBufferUnit - 1) / kBufferUnit * kBufferUnit;
    FreeMemory(buffer);
    const int64_t available = AvailableMemoryBytes();
    // The other ranks' buffers count as used memory once they are allocated.
    if (available >= 0 && bytes * options_.staged_copies > available && i == 0) {
      return ResourceExhausted("checkpoints need ", options_.staged_copies, " x ", bytes >> 20,
                               " MiB of memory for each rank (checkpoint.staged_copies), the "
                               "machine has ",
                               available >> 20,
                               " MiB left for this one; use more nodes or fewer ranks on each");
    }
    ASSIGN_OR_RETURN(buffer.memory, StagingBuffer::Create(bytes));
    const absl::Status registered = RegisterBuffer(i);
    if (!registered.ok()) {
      buffer.memory.reset();
      return registered;
    }
    if (options_.copier != nullptr)
      options_.copier->Prepare(buffer.memory->data(), buffer.memory->bytes());
  }
  return absl::OkStatus();
}

absl::Status Client::Prepare(const std::vector<TensorRange>& ranges) {
  RETURN_IF_ERROR(CheckRanges(ranges, ""));
  if (channel_ == nullptr) return absl::UnavailableError("the checkpoint service is gone");
  ASSIGN_OR_RETURN(const RankFilePlan plan, PlanRankFile(IdentityOf(0, 0), options_.rank, ranges));
  return Reserve(plan.layout.file_bytes);
}

absl::Status Client::Copy(int index, const SaveIdentity& id, const RankFilePlan& plan,
                          const std::vector<TensorRange>& ranges, const std::string& metadata) {
  const absl::Time deadline = MonotonicNow() + kAnswerLimit;
  const Begin begin = {.generation = id.generation, .step = id.step, .buffer = index};
  RETURN_IF_ERROR(Send(begin, deadline));
  buffers_[index].generation = id.generation;

  const absl::Time start = MonotonicNow();
  Stage stage = {.generation = id.generation,
                 .step = id.step,
                 .buffer = index,
                 .bytes = plan.layout.file_bytes,
                 .metadata = metadata};
  if (copy_ != nullptr) {
    copy_->Begin(plan, ranges, buffers_[index].memory->data());
  } else {
    stage.crcs = CrcsToHex(
        CopyRankFile(plan, ranges, buffers_[index].memory->data(), CopyThreads(options_)));
  }
  stage.copy_ms = absl::ToDoubleMilliseconds(MonotonicNow() - start);
  if (copy_ == nullptr) return HandOver(std::move(stage));
  unstaged_ = std::make_unique<Stage>(std::move(stage));
  return absl::OkStatus();
}

// FailedPrecondition with the reason if the save was given up, here or elsewhere.
absl::Status Client::HandOver(Stage stage) {
  const auto before_stage = std::exchange(before_stage_, nullptr);
  if (stage.reason.empty() && before_stage != nullptr)
    stage.reason = std::string(before_stage().message());
  const int buffer = static_cast<int>(stage.buffer);
  RETURN_IF_ERROR(Send(std::move(stage), MonotonicNow() + kAnswerLimit));
  const absl::Status staged = Await<Staged>(kAnswerLimit);
  if (absl::IsFailedPrecondition(staged)) buffers_[buffer].generation = 0;
  return staged;
}

// Hands over a complete copy, or tells the service and the caller that it failed.
void Client::Advance() {
  if (unstaged_ == nullptr) return;
  auto crcs = copy_->Poll();
  if (!crcs.has_value()) return;
  Stage stage = std::move(*std::exchange(unstaged_, nullptr));
  const int64_t step = stage.step;
  const int64_t generation = stage.generation;
  if (crcs->ok()) {
    stage.crcs = CrcsToHex(**crcs);
  } else {
    stage.reason = absl::StrCat("rank ", options_.rank,
                                " could not copy its state: ", crcs->status().message());
  }
  std::string reason = stage.reason;
  if (channel_ == nullptr) {
    if (reason.empty()) reason = "the checkpoint service was lost during the copy";
  } else {
    const absl::Status staged = HandOver(std::move(stage));
    if (!staged.ok() && reason.empty()) reason = std::string(staged.message());
    if (!staged.ok() && !absl::IsFailedPrecondition(staged)) LoseService(staged);
  }
  if (!reason.empty()) Record({step, generation, SaveState::kAbandoned, reason, 0, 0});
}

absl::StatusOr<SaveResult> Client::Save(int64_t step, const std::vector<TensorRange>& ranges,
                                        const std::string& metadata,
                                        std::function<absl::Status()> before_stage) {
  const absl::Time start = MonotonicNow();
  SaveResult result;
  if (step < 0 || step > kMaxStep)
    return InvalidArgument("step ", step, " is not in [0, ", kMaxStep, "]");
  // Counted also if it is not accepted, so that the ranks' generations stay equal.
  saves_ = step == last_step_ ? std::min(saves_ + 1, kSavesPerStep - 1) : 0;
  last_step_ = step;
  result.generation = options_.attempt * kGenerationsPerAttempt + step * kSavesPerStep + saves_;
  RETURN_IF_ERROR(CheckRanges(ranges, metadata));
  if (!CanSave(&result.skip_reason)) return result;
  last_of_step_.erase(step);  // an earlier save at this step
  const SaveIdentity id = IdentityOf(step, result.generation);
  ASSIGN_OR_RETURN(const RankFilePlan plan, PlanRankFile(id, options_.rank, ranges));
  absl::Status staged = Reserve(plan.layout.file_bytes);
  if (absl::IsResourceExhausted(staged)) return staged;
  before_stage_ = std::move(before_stage);
  if (staged.ok()) staged = Copy(FreeBuffer(), id, plan, ranges, metadata);
  result.stall_ms = absl::ToDoubleMilliseconds(MonotonicNow() - start);
  result.bytes = plan.layout.file_bytes;
  result.accepted = staged.ok();
  result.skip_reason = std::string(staged.message());
  // The caller knows; the service says it to all ranks.
  if (absl::IsFailedPrecondition(staged))
    Remember({step, id.generation, SaveState::kAbandoned, result.skip_reason, 0, 0});
  // A refusal is an answer; anything else means that the connection is of no more use.
  if (!staged.ok() && !absl::IsFailedPrecondition(staged)) LoseService(staged);
  return result;
}

std::vector<SaveEvent> Client::PollEvents() {
  Drain();
  Advance();
  std::vector<SaveEvent> events(events_.begin(), events_.end());
  events_.clear();
  return events;
}

absl::Status Client::WaitStaged(int64_t step, absl::Duration limit) {
  const absl::Time deadline = MonotonicNow() + limit;
  for (Advance(); unstaged_ != nullptr && unstaged_->step == step; Advance()) {
    if (MonotonicNow() > deadline) {
      return DeadlineExceeded("the copy of step ", step, " was not done within ",
                              absl::FormatDuration(limit));
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

absl::Status Client::WaitCommitted(int64_t step, absl::Duration limit) {
  const absl::Time deadline = MonotonicNow() + limit;
  // Before that there is nothing to commit.
  const absl::Status staged = WaitStaged(step, limit);
  if (absl::IsDeadlineExceeded(staged)) return staged;
  const std::string path = CheckpointPath(options_.run_dir, step);
  while (true) {
    Drain();
    const auto it = last_of_step_.find(step);
    if (it != last_of_step_.end() && it->second.state == SaveState::kCommitted)
      return absl::OkStatus();
    const bool is_abandoned = it != last_of_step_.end();
    if (is_abandoned || channel_ == nullptr) {
      // It may be on disk nevertheless: committed by an earlier save, or by a service that died
      // afterwards.
      const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path);
      // After this node's vote the coordinator may have committed what this node gave up; on one
      // node it cannot have.
      const bool is_dead = is_abandoned && options_.num_nodes == 1 && checkpoint.ok() &&
                           checkpoint->generation() == it->second.generation;
      // Its service may have died between the rename and the sync of the directory.
      if (checkpoint.ok() && !is_dead && checkpoint->run_id() == options_.run_id &&
          FileSystem::Posix()->SyncDirectory(ParentPath(path)).ok()) {
        return absl::OkStatus();
      }
      return Unavailable("checkpoint of step ", step, " was not committed: ",
                         is_abandoned ? it->second.reason : "the checkpoint service is gone");
    }
    const absl::StatusOr<Message> message = channel_->Receive(deadline);
    if (absl::IsDeadlineExceeded(message.status())) {
      return DeadlineExceeded("checkpoint of step ", step, " was not committed within ",
                              absl::FormatDuration(limit));
    }
    if (message.ok()) {
      Take(*message);
    } else {
      LoseService(message.status());
    }
  }
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  if (options.run_id.empty() || options.attempt < 1 || options.rank < 0 ||
      options.rank >= options.world_size || options.node < 0 || options.node >= options.num_nodes ||
      (options.num_nodes > 1 && options.local_world_size < 1)) {
    return InvalidArgument(
        "checkpoint client needs run_id, attempt >= 1, 0 <= rank < world_size, "
        "0 <= node < num_nodes, and local_world_size with several nodes; got rank ",
        options.rank, " of ", options.world_size, ", node ", options.node, " of ",
        options.num_nodes);
  }
  std::unique_ptr<Client> client(new Client(options));
  RETURN_IF_ERROR(client->Connect(MonotonicNow() + options.connect_limit, kAnswerLimit));
  return client;
}

absl::Status ShutDownService(const std::string& socket_path, const std::string& run_id,
                             int64_t attempt, bool only_if_idle) {
  ASSIGN_OR_RETURN(Channel channel, ConnectChannel(socket_path));
  const absl::Time deadline = MonotonicNow() + kAnswerLimit;
  RETURN_IF_ERROR(channel.Send({run_id, attempt, Shutdown{only_if_idle}}, deadline));
  ASSIGN_OR_RETURN(const Message message, channel.Receive(deadline));
  const auto* reply = std::get_if<ShuttingDown>(&message.body);
  return reply != nullptr ? StatusOf(*reply) : absl::DataLossError("no answer to Shutdown");
}

}  // namespace anyorder::ckpt
