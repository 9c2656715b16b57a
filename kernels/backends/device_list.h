// What this machine and this program have to compute with, for people to read.

#pragma once

#include <string>
#include <vector>

namespace anyorder::kernels {

// "2.6.3"
std::string OneDnnVersion();

// The CPU with its vector instructions, then each GPU, or why there is none. Opens no GPU.
std::vector<std::string> ListDevices();

}  // namespace anyorder::kernels
