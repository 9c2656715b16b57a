// The CUDA backend: kernels/backend.h over the operations of operations.h, matrix products and a
// runtime, a GPU's or the emulation's.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "kernels/backend.h"
#include "kernels/cuda/gemm/gemm_table.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels::cuda {

// Errors: NotFound without cuBLASLt; what a damaged table says.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime> runtime,
                                                         const GemmOptions& options);

}  // namespace anyorder::kernels::cuda
