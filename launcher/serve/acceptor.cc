#include "launcher/serve/acceptor.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/unique_fd.h"

namespace anyorder::launcher {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(100);

}  // namespace

Acceptor::Acceptor(int listener, int64_t num_threads, Serve serve)
    : listener_(listener), serve_(std::move(serve)) {
  for (int64_t n = 0; n < num_threads; ++n) threads_.emplace_back([this] { Run(); });
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
  if (!std::exchange(has_warned_, true))
    LogWarning(absl::StrCat("cannot accept connections: ", ::strerror(fault),
                            "; clients wait until it can"));
  changed_.wait_for(lock, absl::ToChronoMilliseconds(kPause), [this] { return is_stopping_; });
  return !is_stopping_;
}

bool Acceptor::Add(int socket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopping_) return false;
  has_warned_ = false;
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
    changed_.wait_for(lock, absl::ToChronoMilliseconds(limit), [this] { return open_.empty(); });
    for (const auto& [socket, has_asked] : open_) ::shutdown(socket, SHUT_RDWR);
  }
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

}  // namespace anyorder::launcher
