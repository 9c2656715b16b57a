// How much memory, how many files and how many cores this process may use.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace anyorder {

// Bytes of this machine's memory, or of what the control groups of this process allow of it (a
// container, a Slurm job), and of its swap space; 0 if nothing says it. Whatever else runs here:
// what does not fit this never fits. `root` takes the place of "/". Not `is_limited`: all of the
// machine's, of which another job may be allowed more.
int64_t MachineMemoryBytes(absl::string_view root = "", bool is_limited = true);

// What /proc/meminfo says is available now; -1 if it does not say.
int64_t AvailableMemoryBytes();

// Raises the number of files that this process may open to `needed` where it is lower and may be
// raised. ResourceExhausted otherwise, with `who`, who needs them.
absl::Status RaiseOpenFiles(int64_t needed, absl::string_view who);

// Cores that it may use, which may be fewer than the machine has.
int UsableCores();

// "23.4 GiB", "120.0 MiB"
std::string FormatBytes(double bytes);

}  // namespace anyorder
