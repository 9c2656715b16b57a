// Framed messages between trainers and the checkpoint service over a Unix stream socket.
// PROTOCOL.md tells the story.
//
// Frame: 4-byte magic, 4-byte body length, 4-byte CRC32C of the body, then the body: one JSON
// object. A Register frame carries one memfd by SCM_RIGHTS.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::ckpt {

// A body may hold the CRCs of a rank file: 9 bytes a MiB, so 16 MiB allow for files of more than a
// terabyte.
inline constexpr uint32_t kMaxMessageBytes = 16u << 20;

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Client to service unless said otherwise. Every message carries run_id and attempt; the
// service drops a message of another run or attempt.
enum class MessageType {
  kHello = 1,   // rank, world_size, local_world_size, node, num_nodes
  kWelcome,     // service: ok, reason
  kRegister,    // buffer, bytes, and the memfd, sealed against resizing
  kRegistered,  // service: buffer, ok, reason
  kBegin,       // generation, step, buffer: the copy starts (COPYING)
  kStage,   // generation, step, buffer, bytes, crcs, metadata, copy_ms: the copy is complete; with
            // reason: it failed
  kStaged,  // service: generation, ok, reason: from here on the service owns the buffer
  kEvent,   // service: generation, step, state, reason, bytes, seconds
  kBufferFree,    // service: buffer, generation
  kShutdown,      // only_if_idle: refuse while a trainer is connected
  kShuttingDown,  // service: ok, reason
};

// One struct for all types: fields that a type does not use stay at their defaults and are not
// sent.
struct Message {
  MessageType type = MessageType::kHello;
  std::string run_id;
  int64_t attempt = 0;
  int64_t rank = 0;
  int64_t world_size = 0;
  int64_t local_world_size = 0;
  int64_t node = 0;
  int64_t num_nodes = 0;
  int64_t generation = 0;
  int64_t step = 0;
  int64_t buffer = 0;
  int64_t bytes = 0;
  std::string crcs;  // CrcsToHex
  std::string metadata;
  std::string state;
  std::string reason;
  double copy_ms = 0;
  double seconds = 0;
  bool ok = false;
  bool only_if_idle = false;
  UniqueFd fd;  // of kRegister
};

std::string SerializeMessage(const Message& message);
absl::StatusOr<Message> ParseMessage(absl::string_view body);

// One end of a connection; owns the socket. Errors: Unavailable when the peer is gone,
// DataLoss when it sends garbage; either way the channel is of no further use.
class Channel {
 public:
  explicit Channel(UniqueFd socket);
  Channel(Channel&&) = default;
  Channel& operator=(Channel&&) = default;

  int fd() const { return socket_.get(); }

  // Queues the frame and sends what the socket takes now. The service uses this: it never waits for
  // a client.
  absl::Status Post(const Message& message);
  bool has_unsent() const { return sent_ < out_.size(); }
  absl::Status Flush();
  int64_t unsent_bytes() const { return static_cast<int64_t>(out_.size() - sent_); }

  // Sends all of it. Errors: DeadlineExceeded.
  absl::Status Send(const Message& message, absl::Time deadline);

  // The next message if a whole one has arrived. Never blocks.
  absl::StatusOr<std::optional<Message>> TryReceive();
  // Waits for one. Errors: DeadlineExceeded.
  absl::StatusOr<Message> Receive(absl::Time deadline);

 private:
  absl::Status ReadAvailable();
  absl::StatusOr<std::optional<Message>> TakeMessage();
  absl::Status Wait(short events, absl::Time deadline);

  UniqueFd socket_;
  std::string out_;
  size_t sent_ = 0;
  int out_fd_ = -1;  // borrowed: travels with the first byte of the frame being sent
  std::string in_;
  size_t taken_ = 0;  // bytes of in_ that are done with
  std::deque<UniqueFd> in_fds_;
  // Apart, because a peer that can no longer be written to may have left messages to read.
  absl::Status send_fault_;
  absl::Status receive_fault_;
};

// run-dir/.ckptd/node00.sock, or a path under /tmp/anyorder-UID when that is too long for a socket
// address.
std::string DefaultSocketPath(absl::string_view run_dir, int node);

// Connects; the peer must run as the same user (SO_PEERCRED). Errors: Unavailable,
// PermissionDenied.
absl::StatusOr<Channel> ConnectChannel(const std::string& socket_path);

// Makes the socket's directory (mode 0700, ours) and listens. A socket file that nobody answers is
// replaced.
// Errors: AlreadyExists if somebody does; InvalidArgument if the path is too long; PermissionDenied
// if the directory belongs to someone else or is open to others.
absl::StatusOr<UniqueFd> ListenOn(const std::string& socket_path);

// Accepts one connection of the same user. Unavailable if there is none or the peer is another
// user.
absl::StatusOr<Channel> AcceptChannel(int listener);

}  // namespace anyorder::ckpt
