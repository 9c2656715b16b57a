// How much memory this process may use at most.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace anyorder {

// Bytes of this machine's memory, or of what the control groups of this process allow of it (a
// container, a Slurm job), and of its swap space; 0 if nothing says it. Whatever else runs here:
// what does not fit this never fits. `root` takes the place of "/".
int64_t MachineMemoryBytes(absl::string_view root = "");

// "23.4 GiB", "120.0 MiB"
std::string FormatBytes(double bytes);

}  // namespace anyorder
