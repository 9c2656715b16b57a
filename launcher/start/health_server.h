// The launcher's part in knowing who is alive (core/liveness): hears the services of one start over
// TCP, lets them know that it lives, and has them end their ranks.

#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/launcher_endpoint.h"
#include "ckpt/protocol.h"
#include "core/base/mutex.h"
#include "core/base/network_port.h"
#include "core/liveness/node_report.h"

namespace anyorder::launcher {

struct HealthServerOptions {
  std::string run_dir;
  std::string run_id;
  int64_t attempt = 0;
  // Services are on other nodes, and so end their ranks when this process is silent for
  // `silence_limit`. On this machine the kernel ends ranks with their launcher, also one that was
  // stopped and goes on later.
  bool is_distributed = false;
  absl::Duration silence_limit = absl::Minutes(1);
  int64_t num_nodes = 1;
  // Connections are closed that have not shown the token, or said nothing since, for so long.
  absl::Duration stranger_limit = absl::Seconds(5);
  absl::Duration member_limit = absl::Minutes(1);
};

// A thread of its own from construction to destruction, which takes at most a tenth of a second and
// one round. Thread-safe.
//
// Everybody may connect. Who has not shown the token is a stranger: only the newest 16 are kept,
// one message of 4 KiB at most is taken of each, and none is sent to them.
class HealthServer {
 public:
  // Listens, and writes where into the run directory (ckpt/launcher_endpoint.h).
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(const HealthServerOptions& options);
  // Removes that file, and tells the services that this start is over.
  ~HealthServer();
  HealthServer(const HealthServer&) = delete;
  HealthServer& operator=(const HealthServer&) = delete;

  // The newest report of each node.
  std::vector<liveness::NodeReport> Newest() const;
  // Whether the services of `num_nodes` nodes listen. They do when they have finished what the
  // start before left: ranks must not choose a checkpoint earlier.
  bool AreServing(size_t num_nodes) const;
  // Has every service that can be reached, now or later, end its ranks.
  void EndRanks(const std::string& reason);

 private:
  struct Service {
    ckpt::Channel channel;
    absl::Time heard;  // last, or when it was accepted
  };

  HealthServer(const HealthServerOptions& options, ckpt::LauncherEndpoint endpoint,
               ListeningSocket listener);
  void Run();
  void Wait() const;
  void HearStrangers(absl::Time now);
  bool HasToken(const ckpt::Message& message) const;
  absl::Status Serve(Service& service, absl::Time now);

  const HealthServerOptions options_;
  const ckpt::LauncherEndpoint endpoint_;

  // The thread's own.
  ListeningSocket listener_;
  std::list<Service> strangers_;  // the oldest first
  std::list<Service> services_;   // have shown the token
  absl::Time spoke_ = absl::InfinitePast();
  bool has_warned_ = false;  // of strangers

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string end_reason_ ABSL_GUARDED_BY(mutex_);  // "" as long as ranks need not end
  std::map<int, liveness::NodeReport> newest_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
