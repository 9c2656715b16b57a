// How many threads a program may run by default.

#pragma once

#include <sched.h>

namespace anyorder::launcher {

// Cores that this process may use, which may be fewer than the machine has.
inline int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace anyorder::launcher
