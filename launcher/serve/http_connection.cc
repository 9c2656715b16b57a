#include "launcher/serve/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "core/base/monotonic_clock.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kDrainTime = absl::Milliseconds(500);
constexpr int64_t kMostDrainedBytes = 8 << 20;
constexpr char kInterim[] = "HTTP/1.1 100 Continue\r\n\r\n";

// Whether the socket is ready for `events` before `deadline`.
bool AwaitSocket(int socket, int16_t events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - MonotonicNow();
    pollfd item = {socket, events, 0};
    const int64_t wait_ms =
        std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 0, std::numeric_limits<int>::max());
    const int ready = ::poll(&item, 1, static_cast<int>(wait_ms));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (left <= absl::ZeroDuration()) return false;
  }
}

}  // namespace

Connection::Connection(int socket, const ConnectionLimits& limits)
    : socket_(socket),
      limits_(limits),
      deadline_(MonotonicNow() + limits.head_time),
      write_left_(limits.write_time),
      left_bytes_(limits.max_head_bytes) {}

void Connection::BeginBody(int64_t bytes, bool knows_interim) {
  left_bytes_ = bytes;
  may_probe_ = knows_interim;
  deadline_ = MonotonicNow() + limits_.body_time;
}

bool Connection::IsOpen() {
  pollfd item = {socket_, POLLRDHUP, 0};
  if (::poll(&item, 1, 0) <= 0) return true;
  if ((item.revents & (POLLERR | POLLHUP)) != 0) return false;
  if (std::exchange(may_probe_, false))
    ::send(socket_, kInterim, sizeof kInterim - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

void Connection::Drain() {
  ::shutdown(socket_, SHUT_WR);
  const absl::Time deadline = MonotonicNow() + kDrainTime;
  int64_t drained = 0;
  while (drained < kMostDrainedBytes && AwaitSocket(socket_, POLLIN, deadline)) {
    const ssize_t bytes = ::recv(socket_, buffer_, sizeof buffer_, MSG_DONTWAIT);
    if (bytes <= 0) return;
    drained += bytes;
  }
}

bool Connection::is_readable() const {
  return begin_ < end_ || AwaitSocket(socket_, POLLIN, deadline_);
}

bool Connection::Fill() {
  if (!AwaitSocket(socket_, POLLIN, deadline_)) return false;
  const ssize_t bytes = ::recv(socket_, buffer_, sizeof buffer_, MSG_DONTWAIT);
  begin_ = 0;
  end_ = bytes > 0 ? static_cast<size_t>(bytes) : 0;
  return bytes > 0;
}

ssize_t Connection::read(char* data, size_t size) {
  if (left_bytes_ <= 0) return -1;
  if (begin_ == end_ && !Fill()) return -1;
  const size_t bytes = std::min({size, end_ - begin_, static_cast<size_t>(left_bytes_)});
  std::memcpy(data, buffer_ + begin_, bytes);
  begin_ += bytes;
  left_bytes_ -= static_cast<int64_t>(bytes);
  return static_cast<ssize_t>(bytes);
}

// A client that takes a little now and then would keep a limit on single waits for ever.
bool Connection::AwaitRoom() {
  const absl::Time begin = MonotonicNow();
  const bool has_room = AwaitSocket(socket_, POLLOUT, begin + write_left_);
  write_left_ -= MonotonicNow() - begin;
  return has_room;
}

ssize_t Connection::write(const char* data, size_t size) {
  may_probe_ = false;
  size_t written = 0;
  while (written < size) {
    const ssize_t bytes =
        ::send(socket_, data + written, size - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes >= 0) {
      written += static_cast<size_t>(bytes);
    } else if (errno == EAGAIN) {
      if (!AwaitRoom()) return -1;
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(size);
}

// Nobody asks: the log names no client.
void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  get_remote_ip_and_port(ip, port);
}

}  // namespace anyorder::launcher
