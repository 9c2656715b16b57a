// The fused linear cross-entropy on the CPU: row chunks of logits in a workspace, turned into their
// gradients in place.

#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cross_entropy.h"

namespace anyorder::kernels::cpu {

int64_t CrossEntropyWorkspaceBytes(int64_t rows, int64_t vocab, DType dtype);
void LinearCrossEntropy(const LinearCrossEntropyArgs& args, const VectorKernels& kernels,
                        int num_threads, Gemm* gemm);

}  // namespace anyorder::kernels::cpu
