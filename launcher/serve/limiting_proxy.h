// Stands between clients and the HTTP library, for what no version's public interface limits: a
// whole head, a whole body, all waits of an answer, and the faults of accept(2).

#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <thread>

#include "absl/time/time.h"

#include "core/base/mutex.h"
#include "core/base/network_port.h"
#include "core/base/unique_fd.h"

namespace anyorder::launcher {

struct ConnectionLimits {
  int64_t max_head_bytes = 32 << 10;  // the first line and all headers
  absl::Duration head_time = absl::Seconds(10);
  absl::Duration body_time = absl::Seconds(30);
  absl::Duration write_time = absl::Seconds(30);  // that the client keeps answers waiting, in all
};

// Between two warnings of one kind.
constexpr absl::Duration kWarningPeriod = absl::Minutes(1);

// Reads each client's head before the library knows of the client, and passes one request a
// connection on, of the headers only kReadHeaders; Expect it answers itself. A head or body that
// is broken off, too long or too slow becomes a broken head, which the library answers with 400.
// Closes a connection when the client has read its answer. One thread, from construction to Stop.
class LimitingProxy {
 public:
  // `library` is the socket at which the library listens; its connections are closed by it after
  // the answer. Paths may begin with `path_prefix`, which is taken off. While there are
  // `max_connections`, others wait in the listener's queue. What keeps a connection from being
  // accepted, such as a lack of file descriptors, is logged, once a minute, and tried again after a
  // pause.
  LimitingProxy(ListeningSocket listener, std::string library, std::string path_prefix,
                int64_t max_connections, const ConnectionLimits& limits);
  ~LimitingProxy() { Stop(absl::ZeroDuration()); }
  LimitingProxy(const LimitingProxy&) = delete;
  LimitingProxy& operator=(const LimitingProxy&) = delete;

  // Whether the client is still there. A client that closed its sending side may still be reading.
  // To find out, one of HTTP/1.1 is sent an interim response, once, before its answer begins; a
  // closed client answers with a reset. Thread-safe.
  bool IsOpen(const std::string& connection);

  // Accepts nothing more. What clients have sent so far is served, and those that have asked for
  // nothing are cut off. Returns when all connections are closed, which they are after `limit`. May
  // be called again.
  void Stop(absl::Duration limit);

 private:
  enum class Phase { kHead, kRequest, kEnd };
  struct Client {
    UniqueFd socket;
    std::string number;
    absl::Time deadline;  // of the head, the body, the end
    absl::Duration write_left;
    Phase phase = Phase::kHead;
    UniqueFd library;        // while the request is answered
    std::string to_library;  // first the head as far as it is there
    std::string again;       // all that was passed on, in case nobody has read it; or nothing
    std::string to_client;
    int64_t body_left = 0;    // bytes that may still come
    bool has_answer = false;  // at least its beginning
    bool is_answered = false;
    bool may_probe = false;
  };

  void Run();
  // Reads `clients_` without the lock, because no other thread changes them.
  void Wait() const ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void Accept(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does what can be done at once. False: the connection is over.
  bool Serve(Client& client, absl::Time now, absl::Duration waited)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReadHead(Client& client, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginRequest(Client& client, size_t head_bytes, absl::Time now);
  void Refuse(Client& client);
  void ReadBody(Client& client, absl::Time now);
  bool Relay(Client& client, absl::Time now);
  UniqueFd Connect() const;

  const std::string library_;
  const std::string path_prefix_;
  const size_t max_connections_;
  const ConnectionLimits limits_;

  // The thread's own.
  ListeningSocket listener_;
  int64_t num_accepted_ = 0;
  absl::Time next_warning_ = absl::InfinitePast();

  Mutex mutex_;
  std::list<Client> clients_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_deadline_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
