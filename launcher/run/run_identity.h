// Who a start of a run is: the run's name and the number of the start, both from the ledger.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/train/run/ledger.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"

namespace anyorder::launcher {

struct RunIdentity {
  std::string run_id;
  int64_t attempt = 0;
};

// The identity of the next start. A new run gets a random name; one whose ledger is gone keeps that
// of its checkpoints, and goes on counting.
absl::StatusOr<RunIdentity> NextIdentity(const RunDirectory& paths);

// With the lease in hand. The first start writes the run's name down; one that finds the ledger of
// earlier starts gone warns, and writes down that nothing before it is proven (ledger::Lost).
// AlreadyExists if another start came between reading the ledger and taking the lease.
absl::Status RecordCreation(const RunDirectory& paths, const RunIdentity& identity,
                            const RunConfig& config, Ledger& ledger);

}  // namespace anyorder::launcher
