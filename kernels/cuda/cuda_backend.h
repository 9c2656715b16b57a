// The CUDA backend: kernels/backend.h over the operations of operations.h, matrix products and a
// runtime, a GPU's or the emulation's.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "kernels/backend.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels::cuda {

struct CudaBackendOptions {
  // File of the pinned algorithms of matrix products (FORMAT.md): read if it is there, and written
  // as new shapes turn up. "": neither.
  std::string gemm_table;
  bool writes_gemm_table = true;  // one rank of a job does
};

// Errors: NotFound without cuBLASLt; what a damaged table says.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime> runtime,
                                                         const CudaBackendOptions& options);

}  // namespace anyorder::kernels::cuda
