// The checkpoint service of one node: accepts staged snapshots from the local ranks and commits
// them, even if the trainers die. See PROTOCOL.md for the states and the rules.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"

namespace anyorder::ckpt {

struct ServiceOptions {
  std::string run_dir;      // must exist
  std::string socket_path;  // empty: DefaultSocketPath(run_dir, node)
  std::string run_id;
  int64_t attempt = 0;  // the launcher raises it at every start; names lease and generations
  int node = 0;
  int num_nodes = 1;
  // The launcher knows that no service of an attempt up to this one runs any more, so their lease
  // need not be watched. 0: nothing is known.
  int64_t ended_attempt = 0;

  int keep_last = 2;                // newest checkpoints kept; at least 2
  int64_t keep_every = 0;           // also keep every step divisible by this; 0: no
  bool verify_after_commit = true;  // read each checkpoint back before older ones are deleted

  int num_writer_threads = 2;  // two: one checks sums while the other waits for the disk
  absl::Duration stage_limit = absl::Minutes(5);  // from the first rank's copy to the last one's
  absl::Duration vote_limit = absl::Minutes(5);   // waiting for the other nodes
  // How long after the end of a node's service its vote may still appear: as long as the file
  // system may hide a file of another node. Then the vote counts as missing.
  absl::Duration ended_grace = absl::Seconds(2);
  absl::Duration lease_lifetime = absl::Seconds(15);  // node 0 renews every third of it
  // For an earlier attempt's service to finish its saves.
  absl::Duration predecessor_limit = absl::Minutes(2);
  absl::Duration idle_limit = absl::Seconds(60);  // exit this long after the last trainer left
  absl::Duration first_client_limit = absl::Minutes(10);  // the same, before the first trainer came

  FileSystem* fs = FileSystem::Posix();

  absl::Status Validate() const;  // InvalidArgument with all values
};

class Service {
 public:
  // Takes the lease (node 0) or waits for node 0 to have it, removes leftovers of dead starts, and
  // listens. A service of an earlier start that has no trainers is asked to finish and waited for.
  // Errors: InvalidArgument for bad options; AlreadyExists naming the owner if the run directory is
  // in use.
  static absl::StatusOr<std::unique_ptr<Service>> Start(const ServiceOptions& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const std::string& socket_path() const;

  // Serves until asked to stop or idle for long; what is staged is committed first. Aborted if
  // another attempt took the lease: then nothing more is written.
  absl::Status Run();

  // Async-signal-safe: Run finishes what is staged and returns.
  void RequestStop();
  // The same, once the last connected trainer has left: a scheduler signals trainers and services
  // at the same time, and the trainers' last save is still to come.
  void RequestStopAfterTrainers();

 private:
  class Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyorder::ckpt
