// What `anyorder --version` prints.

#pragma once

#include <string>

namespace anyorder::launcher {

// Version and commit, compilers, libraries, and the devices of this machine, one a line. Looks for
// GPUs, without opening one.
std::string VersionText();

}  // namespace anyorder::launcher
