// The launcher's part in knowing who is alive (core/liveness): hears the services of one start over
// TCP, lets them know that it lives, and has them end their ranks.

#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/launcher_endpoint.h"
#include "ckpt/protocol.h"
#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
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
};

// A thread of its own from construction to destruction. Thread-safe.
class HealthServer {
 public:
  // Listens, and writes where into the run directory (ckpt/launcher_endpoint.h).
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(const HealthServerOptions& options);
  // Removes that file, and tells the services that this start is over.
  ~HealthServer();
  HealthServer(const HealthServer&) = delete;
  HealthServer& operator=(const HealthServer&) = delete;

  // The newest report of each node.
  liveness::RunHealth Newest() const;
  // Whether the services of `num_nodes` nodes listen. They do when they have finished what the
  // start before left: ranks must not choose a checkpoint earlier.
  bool AreServing(size_t num_nodes) const;
  // Has every service that can be reached, now or later, end its ranks.
  void EndRanks(const std::string& reason);

 private:
  struct Service {
    ckpt::Channel channel;
    absl::Time since;
    bool is_known = false;  // has shown the token
    bool is_told = false;   // to end its ranks
    absl::Status fault;     // not OK: to be closed
  };

  HealthServer(const HealthServerOptions& options, ckpt::LauncherEndpoint endpoint,
               UniqueFd listener);
  void Run();
  void Wait() const;
  void Accept();
  void Serve(Service& service);
  void Take(Service& service, const ckpt::Message& message);
  void Speak(Service& service);

  const HealthServerOptions options_;
  const ckpt::LauncherEndpoint endpoint_;
  const UniqueFd listener_;

  // The thread's own.
  std::list<Service> services_;
  absl::Time spoke_ = absl::InfinitePast();
  bool has_warned_ = false;  // of a wrong token

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string end_reason_ ABSL_GUARDED_BY(mutex_);  // "" as long as ranks need not end
  std::map<int, liveness::NodeReport> newest_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
