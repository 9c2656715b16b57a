// The CPU backend with chosen vector kernels. Programs call MakeCpuBackend (kernels/backend.h),
// which takes the widest that the machine runs; tests run every one.

#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/vector_kernels.h"

namespace anyorder::kernels::cpu {

// The variants that this machine runs, narrowest first.
std::vector<const VectorKernels*> RunnableVectorVariants();

// REQUIRES: options.num_threads >= 1.
std::unique_ptr<Backend> MakeCpuBackendWith(const CpuBackendOptions& options,
                                            const VectorKernels& vector);

}  // namespace anyorder::kernels::cpu
