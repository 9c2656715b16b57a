#include "ckpt/protocol.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/json_values.h"
#include "core/base/crc32c.h"
#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

template <>
absl::StatusOr<SaveState> GetMember(const ParsedJson& json, const char* key) {
  ASSIGN_OR_RETURN(const auto name, GetMember<std::string>(json, key));
  const auto found = absl::c_find(kSaveStateNames, name);
  if (found != std::end(kSaveStateNames))
    return static_cast<SaveState>(found - std::begin(kSaveStateNames));
  return DataLoss("'", name, "' is no state of a save");
}

namespace {

constexpr uint32_t kMagic = 0x4b434f41;  // "AOCK"
constexpr size_t kFrameHeaderBytes = 12;
// A trainer has two buffers; more descriptors in flight would be an attack on our table of them.
constexpr size_t kMaxPendingFds = 8;

struct FieldWriter {
  Json& json;
  template <typename T>
  void operator()(const char* key, const T& value) {
    if (value != T()) json[key] = value;
  }
  void operator()(const char* key, SaveState state) { json[key] = Name(state); }
};

// Fields that are left out keep their default; a state never is.
struct FieldReader {
  const ParsedJson& json;
  StrictReader reader{json};
  template <typename T>
  void operator()(const char* key, T& value) {
    if (std::is_same_v<T, SaveState> || json.contains(key)) reader(key, value);
  }
};

// Makes `body` the kind of this number on the wire; false if there is none.
template <size_t kIndex = 0>
bool MakeBody(int64_t type, MessageBody& body) {
  if constexpr (kIndex < std::variant_size_v<MessageBody>) {
    if (type != kIndex + 1) return MakeBody<kIndex + 1>(type, body);
    body.emplace<kIndex>();
    return true;
  }
  return false;
}

// The descriptor that travels with a message, null if none does.
template <typename Body>
auto* MemoryOf(Body& message) {
  using Fd = std::conditional_t<std::is_const_v<Body>, const UniqueFd, UniqueFd>;
  return std::visit(
      [](auto& body) -> Fd* {
        if constexpr (requires { body.fd; }) {
          return &body.fd;
        } else {
          return nullptr;
        }
      },
      message);
}

void AppendWord(uint32_t word, std::string* out) {
  for (int byte = 0; byte < 4; ++byte) out->push_back(static_cast<char>(word >> (8 * byte)));
}

uint32_t WordAt(const std::string& text, size_t at) {
  uint32_t word = 0;
  for (int byte = 3; byte >= 0; --byte)
    word = word << 8 | static_cast<unsigned char>(text[at + byte]);
  return word;
}

absl::Status PeerGone(absl::string_view why) {
  return Unavailable("the other end of the socket was closed: ", why);
}

bool IsSameUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

struct UnixAddress {
  sockaddr_un name{};
  UniqueFd directory;  // to be open while the name is used
};

// A path that is too long for an address is written as a name in its open directory. A short one in
// /tmp would be another user's to take.
absl::StatusOr<UnixAddress> AddressOf(const std::string& path) {
  UnixAddress address;
  address.name.sun_family = AF_UNIX;
  std::string text = path;
  if (path.size() >= sizeof(address.name.sun_path)) {
    address.directory = UniqueFd(open(ParentPath(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.directory.valid())
      return Unavailable("open directory '", ParentPath(path), "': ", std::strerror(errno));
    text = absl::StrCat("/proc/self/fd/", address.directory.get(), "/", BaseName(path));
  }
  if (text.size() >= sizeof(address.name.sun_path)) {
    return InvalidArgument("socket name '", BaseName(path), "' has ", BaseName(path).size(),
                           " characters, which no address holds; give a shorter --socket");
  }
  std::memcpy(address.name.sun_path, text.c_str(), text.size() + 1);
  return address;
}

struct Connected {
  UniqueFd fd;
  int error = 0;  // errno; EAGAIN: somebody listens, whose queue is full
};
absl::StatusOr<Connected> Connect(const std::string& socket_path) {
  ASSIGN_OR_RETURN(const UnixAddress address, AddressOf(socket_path));
  Connected peer;
  peer.fd = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!peer.fd.valid()) return ErrnoStatus("socket", socket_path);
  if (connect(peer.fd.get(), reinterpret_cast<const sockaddr*>(&address.name),
              sizeof(address.name)) != 0)
    peer.error = errno;
  return peer;
}

// Creates `directory` if needed; it must be private to this user.
absl::Status MakePrivateDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus("mkdir", directory);
  struct stat info {};
  if (lstat(directory.c_str(), &info) != 0) return ErrnoStatus("stat", directory);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return PermissionDenied("socket directory '", directory,
                            "' must belong to this user and have mode 0700; remove it or fix it");
  }
  return absl::OkStatus();
}

}  // namespace

std::string SerializeMessage(const Message& message) {
  Json json = {{"type", message.body.index() + 1}};
  FieldWriter writer{json};
  writer("run_id", message.run_id);
  writer("attempt", message.attempt);
  std::visit([&](const auto& body) { body.VisitFields(body, writer); }, message.body);
  return DumpJson(json);
}

absl::StatusOr<Message> ParseMessage(absl::string_view body) {
  ASSIGN_OR_RETURN(const ParsedJson json, ParseJsonObject(body));
  ASSIGN_OR_RETURN(const int64_t type, GetMember<int64_t>(json, "type"));
  Message message;
  if (!MakeBody(type, message.body)) return DataLoss("message type ", type, " is unknown");
  FieldReader reader{json};
  reader("run_id", message.run_id);
  reader("attempt", message.attempt);
  std::visit([&](auto& body) { body.VisitFields(body, reader); }, message.body);
  RETURN_IF_ERROR(reader.reader.status());
  return message;
}

Channel::Channel(UniqueFd socket, uint32_t max_bytes)
    : socket_(std::move(socket)), max_bytes_(max_bytes) {}

absl::Status Channel::Post(const Message& message) {
  if (!send_fault_.ok()) return send_fault_;
  const std::string body = SerializeMessage(message);
  if (body.size() > kMaxMessageBytes) return absl::InvalidArgumentError("message is too long");
  AppendWord(kMagic, &out_);
  AppendWord(static_cast<uint32_t>(body.size()), &out_);
  AppendWord(Crc32c(body.data(), static_cast<int64_t>(body.size())), &out_);
  out_ += body;
  if (const UniqueFd* memory = MemoryOf(message.body)) out_fd_ = memory->get();
  return Flush();
}

absl::Status Channel::Flush() {
  while (send_fault_.ok() && has_unsent()) {
    iovec piece = {out_.data() + sent_, out_.size() - sent_};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (out_fd_ >= 0) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &out_fd_, sizeof(int));
    }
    const ssize_t sent = sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (sent < 0) {
      send_fault_ = PeerGone(std::strerror(errno));
      break;
    }
    out_fd_ = -1;
    sent_ += static_cast<size_t>(sent);
  }
  if (!has_unsent()) {
    out_.clear();
    sent_ = 0;
  }
  return send_fault_;
}

absl::Status Channel::Wait(short events, absl::Time deadline) {
  const int64_t left_ms = absl::ToInt64Milliseconds(deadline - MonotonicNow());
  if (left_ms <= 0) return absl::DeadlineExceededError("the checkpoint service does not answer");
  pollfd item = {socket_.get(), events, 0};
  const int ready = poll(&item, 1, static_cast<int>(std::min<int64_t>(left_ms, 1'000'000)));
  if (ready < 0 && errno != EINTR) return PeerGone(std::strerror(errno));
  return absl::OkStatus();
}

absl::Status Channel::Send(const Message& message, absl::Time deadline) {
  RETURN_IF_ERROR(Post(message));
  while (has_unsent()) {
    RETURN_IF_ERROR(Wait(POLLOUT, deadline));
    RETURN_IF_ERROR(Flush());
  }
  return absl::OkStatus();
}

absl::Status Channel::ReadAvailable() {
  std::array<char, 65536> bytes;
  while (true) {
    iovec piece = {bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (got < 0) return PeerGone(std::strerror(errno));
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        in_fds_.push_back(UniqueFd(fd));
      }
    }
    if (in_fds_.size() > kMaxPendingFds)
      return absl::DataLossError("the other end sends descriptors that no message asks for");
    if (got == 0) return PeerGone("closed");
    in_.append(bytes.data(), static_cast<size_t>(got));
    if (in_.size() - taken_ > 2 * size_t{max_bytes_}) return absl::OkStatus();
  }
}

absl::StatusOr<std::optional<Message>> Channel::TakeMessage() {
  // Moving the rest after every message would take quadratic time when someone floods us with small
  // ones.
  if (taken_ > in_.size() / 2) {
    in_.erase(0, taken_);
    taken_ = 0;
  }
  if (in_.size() - taken_ < kFrameHeaderBytes) return std::nullopt;
  const uint32_t length = WordAt(in_, taken_ + 4);
  if (WordAt(in_, taken_) != kMagic || length > max_bytes_)
    return absl::DataLossError("the other end does not speak this protocol");
  if (in_.size() - taken_ < kFrameHeaderBytes + length) return std::nullopt;
  const absl::string_view body(in_.data() + taken_ + kFrameHeaderBytes, length);
  if (Crc32c(body.data(), length) != WordAt(in_, taken_ + 8))
    return absl::DataLossError("a message has a wrong checksum");
  ASSIGN_OR_RETURN(Message message, ParseMessage(body));
  UniqueFd* const memory = MemoryOf(message.body);
  if (memory != nullptr && in_fds_.empty())
    return absl::DataLossError("a message came without its memory");
  if (memory != nullptr) {
    *memory = std::move(in_fds_.front());
    in_fds_.pop_front();
  }
  taken_ += kFrameHeaderBytes + length;
  return message;
}

absl::StatusOr<std::optional<Message>> Channel::TryReceive() {
  // What arrived before the peer went away still counts: a trainer may be killed right after it
  // sent Stage.
  if (receive_fault_.ok()) receive_fault_ = ReadAvailable();
  ASSIGN_OR_RETURN(std::optional<Message> message, TakeMessage());
  if (!message.has_value() && !receive_fault_.ok()) return receive_fault_;
  return message;
}

absl::StatusOr<Message> Channel::Receive(absl::Time deadline) {
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Message> message, TryReceive());
    if (message.has_value()) return *std::move(message);
    RETURN_IF_ERROR(Wait(POLLIN, deadline));
  }
}

std::string DefaultSocketPath(absl::string_view run_dir, int node) {
  return absl::StrFormat("%s/.ckptd/node%02d.sock", run_dir, node);
}

absl::StatusOr<Channel> ConnectChannel(const std::string& socket_path) {
  ASSIGN_OR_RETURN(Connected peer, Connect(socket_path));
  if (peer.error != 0) {
    return Unavailable("connect to '", socket_path, "': ",
                       peer.error == EAGAIN ? "its queue is full; is its service stopped?"
                                            : std::strerror(peer.error));
  }
  if (!IsSameUser(peer.fd.get()))
    return PermissionDenied("'", socket_path, "' is served by another user");
  return Channel(std::move(peer.fd));
}

absl::StatusOr<ListeningSocket> ListenOn(const std::string& socket_path) {
  RETURN_IF_ERROR(MakePrivateDirectory(ParentPath(socket_path)));
  ASSIGN_OR_RETURN(const UnixAddress address, AddressOf(socket_path));
  ASSIGN_OR_RETURN(const Connected peer, Connect(socket_path));
  if (peer.error == 0 || peer.error == EAGAIN)
    return AlreadyExists("a checkpoint service listens on '", socket_path, "' already");
  unlink(socket_path.c_str());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus("socket", socket_path);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), sizeof(address.name)) != 0)
    return ErrnoStatus("bind", socket_path);
  if (listen(fd.get(), SOMAXCONN) != 0) return ErrnoStatus("listen", socket_path);
  return ListeningSocket(std::move(fd));
}

absl::StatusOr<Channel> AcceptChannel(ListeningSocket& listener) {
  UniqueFd fd = listener.Accept();
  if (!fd.valid()) return PeerGone("nobody could be accepted");
  if (!IsSameUser(fd.get())) return PeerGone("it belongs to another user");
  return Channel(std::move(fd));
}

}  // namespace anyorder::ckpt
