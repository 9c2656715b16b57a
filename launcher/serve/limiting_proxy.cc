#include "launcher/serve/limiting_proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

constexpr int kTickMs = 100;
constexpr absl::Duration kLibraryPatience = absl::Seconds(1);
constexpr absl::Duration kDrainTime = absl::Milliseconds(500);
constexpr int64_t kMostDrainedBytes = 8 << 20;
constexpr size_t kPieceBytes = 64 << 10;
constexpr char kInterim[] = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr char kBrokenHead[] = "\r\n\r\n";

bool MayGoOn(ssize_t bytes) { return bytes > 0 || (bytes < 0 && errno == EAGAIN); }

// Appends what there is, `most` bytes at most. False if nothing comes any more.
bool Receive(const UniqueFd& socket, size_t most, std::string& data) {
  char piece[kPieceBytes];
  const ssize_t bytes = ::recv(socket.get(), piece, std::min(most, sizeof piece), MSG_DONTWAIT);
  if (bytes > 0) data.append(piece, static_cast<size_t>(bytes));
  return MayGoOn(bytes);
}

// Removes what the socket takes. False if it takes nothing any more.
bool Send(const UniqueFd& socket, std::string& data) {
  if (data.empty()) return true;
  const ssize_t bytes = ::send(socket.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (bytes > 0) data.erase(0, static_cast<size_t>(bytes));
  return MayGoOn(bytes);
}

int16_t EventsOf(const UniqueFd& socket) {
  pollfd item = {socket.get(), POLLRDHUP, 0};
  ::poll(&item, 1, 0);
  return item.revents;
}
bool IsGone(int16_t events) { return (events & (POLLERR | POLLHUP)) != 0; }
void SendInterim(const UniqueFd& socket) {
  ::send(socket.get(), kInterim, sizeof kInterim - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Of what nobody asks for the library makes something all the same: parts of answers, and by
// regular expressions, in some versions, a deep recursion.
bool IsRead(absl::string_view line) {
  return std::any_of(std::begin(kReadHeaders), std::end(kReadHeaders), [line](const char* name) {
    return absl::StartsWithIgnoreCase(line, absl::StrCat(name, ":"));
  });
}

}  // namespace

LimitingProxy::LimitingProxy(ListeningSocket listener, std::string library, std::string path_prefix,
                             int64_t max_connections, const ConnectionLimits& limits)
    : library_(std::move(library)),
      path_prefix_(std::move(path_prefix)),
      max_connections_(static_cast<size_t>(max_connections)),
      limits_(limits),
      listener_(std::move(listener)),
      thread_([this] { Run(); }) {}

bool LimitingProxy::IsOpen(const std::string& connection) {
  const MutexLock lock(&mutex_);
  for (Client& client : clients_) {
    if (client.number != connection) continue;
    const int16_t events = EventsOf(client.socket);
    if ((events & POLLRDHUP) != 0 && !client.has_answer && std::exchange(client.may_probe, false))
      SendInterim(client.socket);
    return !IsGone(events);
  }
  return false;
}

void LimitingProxy::Stop(absl::Duration limit) {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
    stop_deadline_ = MonotonicNow() + limit;
  }
  thread_.join();
}

void LimitingProxy::Run() {
  for (absl::Time last = MonotonicNow();;) {
    Wait();
    const MutexLock lock(&mutex_);
    const absl::Time now = MonotonicNow();
    if (is_stopping_) {
      listener_ = ListeningSocket();
      if (now >= stop_deadline_) clients_.clear();
    } else {
      Accept(now);
    }
    clients_.remove_if([&](Client& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !Serve(client, now, now - last);
    });
    if (is_stopping_ && clients_.empty()) return;
    last = now;
  }
}

void LimitingProxy::Wait() const {
  std::vector<pollfd> items;
  if (clients_.size() < max_connections_) items.push_back(listener_.PollItem());
  for (const Client& client : clients_) {
    const bool reads =
        client.phase != Phase::kRequest || (client.body_left > 0 && client.to_library.empty());
    const bool writes = !client.to_client.empty();
    items.push_back({client.socket.get(),
                     static_cast<int16_t>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
    // Not asked for while nothing is wanted of it: that it was closed would end each wait.
    const bool passes_on = client.phase == Phase::kRequest && !client.to_library.empty();
    if (!writes || passes_on)
      items.push_back({client.library.get(),
                       static_cast<int16_t>((writes ? 0 : POLLIN) | (passes_on ? POLLOUT : 0)), 0});
  }
  ::poll(items.data(), items.size(), kTickMs);
}

void LimitingProxy::Accept(absl::Time now) {
  while (clients_.size() < max_connections_) {
    UniqueFd socket = listener_.Accept();
    if (!socket.valid()) return;
    Client& client = clients_.emplace_back();
    client.socket = std::move(socket);
    client.number = absl::StrCat(++num_accepted_);
    client.deadline = now + limits_.head_time;
    client.write_left = limits_.write_time;
  }
}

bool LimitingProxy::Serve(Client& client, absl::Time now, absl::Duration waited) {
  // At the end, one that closed its sending side may have sent what is still to be read.
  const int16_t events = EventsOf(client.socket);
  if (client.phase == Phase::kEnd ? (events & POLLERR) != 0 : IsGone(events)) return false;
  // A client that takes a little now and then would keep a limit on single waits for ever.
  if (!client.to_client.empty()) client.write_left -= waited;
  if (client.write_left <= absl::ZeroDuration()) return false;
  if (client.phase == Phase::kHead && !ReadHead(client, now)) return false;
  if (client.phase == Phase::kRequest) return Relay(client, now);
  if (client.phase == Phase::kHead) return true;
  // Closing a socket with unread bytes would take back the answer.
  std::string unused;
  const bool has_more = Receive(client.socket, kPieceBytes, unused);
  client.body_left -= static_cast<int64_t>(unused.size());
  return has_more && client.body_left > 0 && now < client.deadline;
}

bool LimitingProxy::ReadHead(Client& client, absl::Time now) {
  std::string& head = client.to_library;
  const size_t before = head.size();
  const auto most = static_cast<size_t>(limits_.max_head_bytes);
  const bool has_more = Receive(client.socket, most - before, head);
  const size_t end = head.find("\n\r\n", before < 2 ? 0 : before - 2);
  if (end != head.npos) {
    BeginRequest(client, end + 3, now);
  } else if (!has_more || head.size() >= most || now >= client.deadline) {
    if (head.empty()) return false;
    Refuse(client);
  } else {
    return !is_stopping_;
  }
  return true;
}

void LimitingProxy::BeginRequest(Client& client, size_t head_bytes, absl::Time now) {
  const std::string received = std::exchange(client.to_library, "");
  const absl::string_view head = absl::string_view(received).substr(0, head_bytes - 1);
  const absl::string_view rest = absl::string_view(received).substr(head_bytes);
  int64_t bytes = 0;
  // Versions of the library differ in where a line ends, so that it gets lines that all agree on.
  for (absl::string_view line : absl::StrSplit(head, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    if (absl::StartsWithIgnoreCase(line, "Content-Length:") &&
        !absl::SimpleAtoi(line.substr(line.find(':') + 1), &bytes))
      bytes = 0;
    // Once the library has answered it, a body that does not come could not be refused.
    if (client.may_probe && absl::StartsWithIgnoreCase(line, "Expect:")) SendInterim(client.socket);
    if (client.to_library.empty()) {
      client.may_probe = absl::EndsWith(line, " HTTP/1.1");
      // Proxies pass the beginning of a path on, or not.
      client.to_library =
          absl::StrReplaceAll(line, {{absl::StrCat(" ", path_prefix_, "/"), " /"},
                                     {absl::StrCat(" ", path_prefix_, " "), " / "}});
      absl::StrAppend(&client.to_library, "\r\n", kConnectionHeader, ": ", client.number, "\r\n");
    } else if (line.empty() || IsRead(line)) {
      absl::StrAppend(&client.to_library, line, "\r\n");
    }
  }
  bytes = std::max<int64_t>(bytes, 0);
  const absl::string_view body = rest.substr(0, static_cast<size_t>(bytes));
  absl::StrAppend(&client.to_library, body);
  client.again = client.to_library;
  client.body_left = bytes - static_cast<int64_t>(body.size());
  client.deadline = now + limits_.body_time;
  client.phase = Phase::kRequest;
}

void LimitingProxy::Refuse(Client& client) {
  client.phase = Phase::kRequest;
  client.body_left = 0;
  client.may_probe = false;
  client.library = UniqueFd();
  client.is_answered = client.has_answer;
  client.again.clear();
  client.to_library = client.has_answer ? "" : kBrokenHead;
}

void LimitingProxy::ReadBody(Client& client, absl::Time now) {
  const auto most = static_cast<size_t>(client.body_left);
  const bool has_more = Receive(client.socket, most, client.to_library);
  if (!client.to_library.empty()) client.again.clear();
  client.body_left -= static_cast<int64_t>(client.to_library.size());
  if (client.body_left > 0 && (!has_more || now >= client.deadline)) Refuse(client);
}

bool LimitingProxy::Relay(Client& client, absl::Time now) {
  if (client.body_left > 0 && client.to_library.empty()) ReadBody(client, now);
  // Where that fails it is tried again after a tick.
  if (!client.library.valid() && !client.is_answered) {
    client.library = Connect();
    // The library may be about to listen.
    if (!client.library.valid() && now >= next_warning_ &&
        now > client.deadline - limits_.body_time + kLibraryPatience) {
      next_warning_ = now + kWarningPeriod;
      LogWarning(absl::StrCat("cannot pass requests on: ", ::strerror(errno),
                              "; clients wait until it can"));
    }
  }
  if (client.library.valid()) {
    // What the library does not read any more it has refused.
    if (!Send(client.library, client.to_library)) client.to_library.clear();
    if (client.to_client.empty() && !Receive(client.library, kPieceBytes, client.to_client)) {
      client.library = UniqueFd();
      client.is_answered = client.has_answer || client.again.empty() || now >= client.deadline;
      if (!client.is_answered) client.to_library = client.again;
    }
  }
  client.has_answer |= !client.to_client.empty();
  if (!Send(client.socket, client.to_client)) return false;
  if (client.is_answered && client.to_client.empty()) {
    ::shutdown(client.socket.get(), SHUT_WR);
    client.deadline = now + kDrainTime;
    client.body_left = kMostDrainedBytes;
    client.phase = Phase::kEnd;
  }
  return true;
}

UniqueFd LimitingProxy::Connect() const {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  library_.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return UniqueFd();
  return socket;
}

}  // namespace anyorder::launcher
