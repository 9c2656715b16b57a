// Losses on the CPU.

#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/losses.h"

namespace anyorder::kernels::cpu {

// Cross-entropy fused with its linear layer: chunks of rows of logits lie in a workspace and are
// turned into their gradients in place.
int64_t CrossEntropyWorkspaceBytes(int64_t rows, int64_t vocab, DType dtype);
void LinearCrossEntropy(const LinearCrossEntropyArgs& args, const VectorKernels& kernels,
                        int num_threads, Gemm* gemm);

// Losses of heads, in double: their few logits cost nothing next to the layers below.
void HeadLoss(const HeadLossArgs& args, int num_threads);

}  // namespace anyorder::kernels::cpu
