// The disk space, shared memory and open files that a start needs. With too little of what Open MPI
// takes it reports no error: it hangs before the first rank runs, or dies of SIGBUS.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/train/run/run_config.h"
#include "launcher/process/node_place.h"

namespace anyorder::launcher {

// ResourceExhausted naming the place, what is free and what `ranks` ranks need, if there is too
// little room in `scratch`, which exists, or if this process may open too few files; that limit is
// raised where it may be.
absl::Status CheckRoom(const NodeScratch& scratch, int64_t ranks);

// What the disk must hold, and has.
struct CheckpointRoom {
  double checkpoint_bytes = 0;
  int64_t step = 0;         // that the run has reached
  int64_t checkpoints = 0;  // that lie there already, and will make room for others
  int64_t free_bytes = 0;
};

// ResourceExhausted, with a smaller checkpoint.keep_last where that helps, if there is no room for
// the checkpoints that `config` keeps at once and the one that is written meanwhile. What
// checkpoint.keep_every adds over the whole run may be moved away in time: a line in `warning`
// tells what it comes to, if that does not fit.
absl::Status CheckCheckpointRoom(const RunConfig& config, const CheckpointRoom& room,
                                 std::string* warning);
// Free bytes where `directory` is, or will be made. Errors of the file system.
absl::StatusOr<int64_t> FreeBytesAround(const std::string& directory);

}  // namespace anyorder::launcher
