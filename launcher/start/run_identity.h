// Who a start of a run is: the run's name and the number of this start, both from the ledger; and
// the lease that keeps two launchers out of one run directory.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/lease.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"

namespace anyorder::launcher {

struct RunIdentity {
  std::string run_id;
  int64_t attempt = 0;
};

// Of the next start. A new run gets a random name.
absl::StatusOr<RunIdentity> NextIdentity(const RunDirectory& paths);

// With the lease in hand. The first start writes the run's name down. AlreadyExists if another
// start came between reading the ledger and taking the lease.
absl::Status RecordCreation(const RunDirectory& paths, const RunIdentity& identity,
                            const RunConfig& config, Ledger& ledger);

// Renews a lease in the background for as long as it lives.
class LeaseKeeper {
 public:
  LeaseKeeper(ckpt::Lease& lease, absl::Duration interval);
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

 private:
  void Run();

  ckpt::Lease& lease_;
  const absl::Duration interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::launcher
