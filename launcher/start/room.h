// The disk space, shared memory and open files that a start on this machine needs. With too little
// of them Open MPI reports no error: it hangs before the first rank runs, or dies of SIGBUS.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "launcher/process/node_place.h"

namespace anyorder::launcher {

// ResourceExhausted naming the place, what is free and what `ranks` ranks need, if there is too
// little room in `scratch`, which exists, or if this process may open too few files; that limit is
// raised where it may be.
absl::Status CheckRoom(const NodeScratch& scratch, int64_t ranks);

}  // namespace anyorder::launcher
