// A rollback is a line in the ledger: the run ends, the next start goes on from the newest
// checkpoint as after any other end, finds the line and holds the bad steps back when they come
// again. So it survives whatever happens in between.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/run/anomaly_policy.h"
#include "dist/communicator.h"

namespace anyorder {

// What the rollbacks of the run so far hold back.
absl::StatusOr<std::vector<SkippedSteps>> ReadRollbacks(const std::string& ledger_path);

// Collective: rank 0 reads, and all ranks get the same.
absl::StatusOr<std::vector<SkippedSteps>> AgreeOnRollbacks(const std::string& ledger_path,
                                                           dist::Communicator& communicator);

}  // namespace anyorder
