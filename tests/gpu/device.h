// The device of a test program of this folder: a GPU (device_gpu.cc), or the emulation, on which
// the small cases rehearse in every build (device_emulated.cc).

#pragma once

#include <memory>

#include "absl/status/status.h"

#include "kernels/backend.h"

namespace anyorder::testing {

// Whether there is one; if not, the status says why in one line.
absl::Status CheckDevice();

// A backend of its own on the first device. Ends the program if CheckDevice is not OK.
std::unique_ptr<kernels::Backend> OpenDevice();

}  // namespace anyorder::testing
