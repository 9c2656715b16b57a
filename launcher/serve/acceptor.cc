#include "launcher/serve/acceptor.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kWarningPeriod = absl::Minutes(1);
// No wait is longer: the end of an infinite one would overflow.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

}  // namespace

Acceptor::Acceptor(int listener, Serve serve) : listener_(listener), serve_(std::move(serve)) {}

absl::Status Acceptor::Start(int64_t num_threads) {
  try {
    for (int64_t n = 0; n < num_threads; ++n) threads_.emplace_back([this] { Run(); });
    return absl::OkStatus();
  } catch (const std::system_error& fault) {
    Stop(absl::ZeroDuration());
    return Unavailable("cannot start ", num_threads, " threads: ", fault.code().message(),
                       "; lower --max-queue or raise the limit of processes");
  }
}

void Acceptor::Run() {
  while (true) {
    const UniqueFd socket(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (!MayGoOn(errno)) return;
      continue;
    }
    if (!Add(socket.get())) return;
    serve_(socket.get(), [this, &socket] {
      const std::lock_guard<std::mutex> lock(mutex_);
      open_[socket.get()] = true;
    });
    // While it is open, so that Stop never knows a socket that is another one by now.
    Remove(socket.get());
  }
}

bool Acceptor::MayGoOn(int fault) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (is_stopping_) return false;
  // Its client left before it was accepted.
  if (fault == ECONNABORTED || fault == EINTR) return true;
  if (MonotonicNow() >= next_warning_) {
    next_warning_ = MonotonicNow() + kWarningPeriod;
    LogWarning(absl::StrCat("cannot accept connections: ", ::strerror(fault),
                            "; clients wait until it can"));
  }
  changed_.wait_for(lock, absl::ToChronoMilliseconds(kPause), [this] { return is_stopping_; });
  return !is_stopping_;
}

bool Acceptor::Add(int socket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopping_) return false;
  open_[socket] = false;
  return true;
}

void Acceptor::Remove(int socket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_.erase(socket);
  changed_.notify_all();
}

void Acceptor::Stop(absl::Duration limit) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
    // What has arrived can still be read.
    for (const auto& [socket, has_asked] : open_)
      if (!has_asked) ::shutdown(socket, SHUT_RD);
  }
  // Wakes the threads that wait for connections.
  ::shutdown(listener_, SHUT_RDWR);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoMilliseconds(std::min(limit, kLongestWait)),
                      [this] { return open_.empty(); });
    for (const auto& [socket, has_asked] : open_) ::shutdown(socket, SHUT_RDWR);
  }
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

}  // namespace anyorder::launcher
