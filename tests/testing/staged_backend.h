// Lets tests call any backend with host memory: what arguments point to travels to the device and
// back with each call.

#pragma once

#include <memory>

#include "kernels/backend.h"

namespace anyorder::testing {

// Around `inner`, each operation takes host pointers, runs on device memory that it got by
// Allocate, and has brought back its results when it returns; that what is only read stayed as it
// was is checked. Other members pass on.
std::unique_ptr<kernels::Backend> MakeStagedBackend(std::unique_ptr<kernels::Backend> inner);

}  // namespace anyorder::testing
