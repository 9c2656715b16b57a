// Framed messages between trainers and the checkpoint service over a Unix stream socket, and
// between services and the launcher over TCP (core/liveness). See PROTOCOL.md.
//
// Frame: 4-byte magic, 4-byte body length, 4-byte CRC32C of the body, then the body: one JSON
// object. A frame of Register or Watch carries one memfd by SCM_RIGHTS.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/base/network_port.h"
#include "core/base/unique_fd.h"

namespace anyorder::ckpt {

// A body may hold the CRCs of a rank file: 9 bytes a MiB, so 16 MiB allow for files of more than a
// terabyte.
inline constexpr uint32_t kMaxMessageBytes = 16u << 20;
// Of a peer on the network that has not shown the token: an Attach has about 150.
inline constexpr uint32_t kMaxStrangerBytes = 4u << 10;
// Of a launcher, or of what listens where it did: the reason of an EndRanks.
inline constexpr uint32_t kMaxLauncherBytes = 64u << 10;

// The kinds of messages. VisitFields lists what is sent; fields with their default are left out.
//
// From a trainer:

struct Hello {
  int64_t rank = 0;
  int64_t world_size = 0;
  int64_t local_world_size = 0;
  int64_t node = 0;
  int64_t num_nodes = 0;

  static void VisitFields(auto& self, auto& visit) {
    visit("rank", self.rank);
    visit("world_size", self.world_size);
    visit("local_world_size", self.local_world_size);
    visit("node", self.node);
    visit("num_nodes", self.num_nodes);
  }
};

// Here is the memory of a staging buffer.
struct Register {
  int64_t buffer = 0;
  int64_t bytes = 0;
  UniqueFd fd;  // the memfd, sealed against resizing; sent with the frame, not in it

  static void VisitFields(auto& self, auto& visit) {
    visit("buffer", self.buffer);
    visit("bytes", self.bytes);
  }
};

// The copy starts (COPYING).
struct Begin {
  int64_t generation = 0;
  int64_t step = 0;
  int64_t buffer = 0;

  static void VisitFields(auto& self, auto& visit) {
    visit("generation", self.generation);
    visit("step", self.step);
    visit("buffer", self.buffer);
  }
};

// The copy is complete; with `reason`, it failed.
struct Stage {
  int64_t generation = 0;
  int64_t step = 0;
  int64_t buffer = 0;
  int64_t bytes = 0;
  std::string crcs;  // CrcsToHex
  std::string metadata;
  std::string reason;
  double copy_ms = 0;

  static void VisitFields(auto& self, auto& visit) {
    visit("generation", self.generation);
    visit("step", self.step);
    visit("buffer", self.buffer);
    visit("bytes", self.bytes);
    visit("crcs", self.crcs);
    visit("metadata", self.metadata);
    visit("reason", self.reason);
    visit("copy_ms", self.copy_ms);
  }
};

// From anybody: finish what is staged and exit.
struct Shutdown {
  bool only_if_idle = false;  // refuse while a trainer is connected

  static void VisitFields(auto& self, auto& visit) { visit("only_if_idle", self.only_if_idle); }
};

// From the service, the answers to Hello, Register, Stage and Shutdown; then SaveEvent and
// BufferFree.

struct Answer {
  bool ok = false;
  std::string reason;  // why not

  static void VisitFields(auto& self, auto& visit) {
    visit("reason", self.reason);
    visit("ok", self.ok);
  }
};

struct Welcome : Answer {};
struct Registered : Answer {};
struct Staged : Answer {};  // if ok, the service owns the buffer from here on
struct ShuttingDown : Answer {};

// What a trainer is told about a save (PROTOCOL.md, "States").
enum class SaveState {
  kCopying,
  kStaged,
  kWriting,
  kDurable,
  kCommitted,
  kVerified,
  kDamaged,
  kRecovered,
  kAbandoned,
};
inline constexpr const char* kSaveStateNames[] = {"COPYING", "STAGED",    "WRITING",
                                                  "DURABLE", "COMMITTED", "VERIFIED",
                                                  "DAMAGED", "RECOVERED", "ABANDONED"};
inline const char* Name(SaveState state) { return kSaveStateNames[static_cast<int>(state)]; }

struct SaveEvent {
  int64_t step = 0;
  int64_t generation = 0;
  SaveState state = SaveState::kCopying;
  std::string reason;  // of kAbandoned and kDamaged
  int64_t bytes = 0;   // of all ranks on this node; of the whole checkpoint from kCommitted on
  double seconds_to_commit = 0;  // from the first rank's copy; set with kCommitted

  static void VisitFields(auto& self, auto& visit) {
    visit("generation", self.generation);
    visit("step", self.step);
    visit("state", self.state);
    visit("reason", self.reason);
    visit("bytes", self.bytes);
    visit("seconds", self.seconds_to_commit);
  }
};

struct BufferFree {
  int64_t buffer = 0;
  int64_t generation = 0;

  static void VisitFields(auto& self, auto& visit) {
    visit("generation", self.generation);
    visit("buffer", self.buffer);
  }
};

// About who is alive. Not answered.

// From a rank, on a connection of its own: the page that says what it does
// (core/liveness/rank_page.h). The connection closes with the rank.
struct Watch {
  UniqueFd fd;  // as in Register

  static void VisitFields(auto&, auto&) {}
};

// To a rank: end at once. From the launcher to a service: its ranks must.
struct EndRanks {
  std::string reason;

  static void VisitFields(auto& self, auto& visit) { visit("reason", self.reason); }
};

// From a service to the launcher, first, then Report.
struct Attach {
  std::string token;  // that the launcher wrote into the run directory

  static void VisitFields(auto& self, auto& visit) { visit("token", self.token); }
};

struct Report {
  std::string text;  // SerializeNodeReport

  static void VisitFields(auto& self, auto& visit) { visit("text", self.text); }
};

// From the launcher to a service.
struct Alive {
  static void VisitFields(auto&, auto&) {}
};

// Their order is that of the numbers on the wire, from 1.
using MessageBody =
    std::variant<Hello, Welcome, Register, Registered, Begin, Stage, Staged, SaveEvent, BufferFree,
                 Shutdown, ShuttingDown, Watch, EndRanks, Attach, Report, Alive>;

struct Message {
  // The service drops a message of another run or attempt.
  std::string run_id;
  int64_t attempt = 0;
  MessageBody body;
};

std::string SerializeMessage(const Message& message);
absl::StatusOr<Message> ParseMessage(absl::string_view body);

// One end of a connection; owns the socket. Errors: Unavailable when the peer is gone,
// DataLoss when it sends garbage or a body of more than `max_bytes`, of which no more is read and
// kept than twice that and 64 KiB; either way the channel is of no further use.
class Channel {
 public:
  explicit Channel(UniqueFd socket, uint32_t max_bytes = kMaxMessageBytes);
  Channel(Channel&&) = default;
  Channel& operator=(Channel&&) = default;

  int fd() const { return socket_.get(); }
  void set_max_bytes(uint32_t max_bytes) { max_bytes_ = max_bytes; }

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
  uint32_t max_bytes_;  // of a body that is received
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

// run-dir/.ckptd/node00.sock. It may be longer than a socket's address.
std::string DefaultSocketPath(absl::string_view run_dir, int node);

// Connects; the peer must run as the same user (SO_PEERCRED). Does not wait: of a peer that accepts
// nobody, because it is stopped, the queue is full some day. Errors: Unavailable,
// PermissionDenied.
absl::StatusOr<Channel> ConnectChannel(const std::string& socket_path);

// Makes the socket's directory (mode 0700, ours) and listens. A socket file that nobody answers is
// replaced.
// Errors: AlreadyExists if somebody does; InvalidArgument if its last name is too long;
// PermissionDenied if the directory belongs to someone else or is open to others.
absl::StatusOr<ListeningSocket> ListenOn(const std::string& socket_path);

// Accepts one connection of the same user. Unavailable if there is none or the peer is another
// user.
absl::StatusOr<Channel> AcceptChannel(ListeningSocket& listener);

}  // namespace anyorder::ckpt
