// Connections that a listening socket accepts, each served by one of a number of threads.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace anyorder::launcher {

class Acceptor {
 public:
  // Serves one connection. Borrows the socket, and calls `has_asked` once the client's request is
  // known to be one.
  using Serve = std::function<void(int socket, const std::function<void()>& has_asked)>;

  // `listener` must outlive this.
  Acceptor(int listener, Serve serve);
  ~Acceptor() { Stop(absl::ZeroDuration()); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Each thread serves a connection at a time: while all do, further connections wait in the
  // listener's queue. What keeps a connection from being accepted, such as a lack of file
  // descriptors, is logged, once a minute, and tried again after a pause. Errors: Unavailable if a
  // thread cannot be started; then this is stopped.
  absl::Status Start(int64_t num_threads);

  // Accepts nothing more. What clients have sent so far is served, and those that have asked for
  // nothing are cut off. Returns when all connections are closed. After `limit` their reads and
  // writes fail, and Stop waits for `serve` to return. May be called again.
  void Stop(absl::Duration limit);

 private:
  void Run();
  // Whether to go on after accept(2) has failed with `fault`.
  bool MayGoOn(int fault);
  // False, and the connection is none, if this stops.
  bool Add(int socket);
  void Remove(int socket);

  const int listener_;
  const Serve serve_;

  std::mutex mutex_;  // below
  std::condition_variable changed_;
  std::map<int, bool> open_;  // socket -> whether its client has asked for something
  absl::Time next_warning_ = absl::InfinitePast();
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;  // last: use all of the above
};

}  // namespace anyorder::launcher
