// Losses on the CPU.

#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/losses.h"

namespace anyorder::kernels::cpu {

// Fused with its linear layer: row chunks of logits in a workspace, turned into their gradients in
// place.
int64_t CrossEntropyWorkspaceBytes(int64_t rows, int64_t vocab, DType dtype);
void LinearCrossEntropy(const LinearCrossEntropyArgs& args, const VectorKernels& kernels,
                        int num_threads, Gemm* gemm);

// In double: next to the layers below, the few logits of heads cost nothing.
void HeadLoss(const HeadLossArgs& args, int num_threads);

}  // namespace anyorder::kernels::cpu
