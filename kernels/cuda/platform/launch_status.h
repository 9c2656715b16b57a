// What is done about a CUDA runtime's error that is not the caller's to handle.

#pragma once

#include <cuda_runtime.h>

namespace anyorder::kernels::cuda {

// Ends the program (EndAtDeviceError) with `what` and the runtime's words unless `status` is
// success: a launch that is refused is our own mistake, and nothing after a failed kernel can be
// believed. A lack of memory ends it with kExitIo.
void CheckCuda(cudaError_t status, const char* what);

}  // namespace anyorder::kernels::cuda
