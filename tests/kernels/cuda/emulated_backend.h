// The CUDA backend's kernels behind the contract, on the CPU: operations that have no kernel yet are the reference's.

#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/emulation/block.h"

namespace anyorder::kernels::cuda {

std::unique_ptr<Backend> MakeEmulatedBackend(const emulation::Schedule& schedule);

}  // namespace anyorder::kernels::cuda
