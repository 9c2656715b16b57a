// The way out of a process whose peers, disk or terminal may be stuck.

#pragma once

#include <unistd.h>

#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace anyorder::liveness {

// Ends the process with `status` in `limit` at the latest, whatever its threads wait for by then: a
// full pipe behind stderr, a disk, a lost peer. No destructors run.
inline void ExitAfter(absl::Duration limit, int status) {
  std::thread([limit, status] {
    absl::SleepFor(limit);
    ::_exit(status);
  }).detach();
}

}  // namespace anyorder::liveness
