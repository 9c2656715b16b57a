// The device operations of the CUDA backend, a Run for each: they choose the kernel's form and
// launch it. Arguments were checked (kernels/arguments.h); T is fp32 or bf16; all pointers, those
// of ids and rows too, are device pointers.

#pragma once

#include <functional>

#include "core/base/stream.h"
#include "core/base/tensor.h"
#include "kernels/cuda/operations/operation_sizes.h"
#include "kernels/operation.h"

namespace anyorder::kernels::cuda {

// How an operation multiplies matrices: the backend's Gemm.
using GemmFunction = std::function<void(const GemmArgs& args, StreamView stream)>;

void PlanAttention(const AttentionPlan& plan, StreamView stream);
void Run(const AttentionForwardArgs& args, float* scratch, StreamView stream);
void Run(const AttentionBackwardArgs& args, StreamView stream);
void Run(const LayerNormForwardArgs& args, StreamView stream);
void Run(const LayerNormBackwardArgs& args, float* scratch, StreamView stream);
void Run(const ActivationForwardArgs& args, StreamView stream);
void Run(const ActivationBackwardArgs& args, StreamView stream);
void Run(const DropoutArgs& args, StreamView stream);
void Run(const EmbeddingForwardArgs& args, StreamView stream);
void Run(const EmbeddingBackwardArgs& args, float* scratch, StreamView stream);
void Run(const GatherRowsArgs& args, StreamView stream);
void Run(const RotaryArgs& args, StreamView stream);
void Run(const LinearCrossEntropyArgs& args, const GemmFunction& gemm, StreamView stream);
void Run(const HeadLossArgs& args, StreamView stream);
// Any product without a library, slowly.
void PlainGemm(const GemmArgs& args, StreamView stream);
void Run(const ColumnSumArgs& args, float* scratch, StreamView stream);
void Run(const AdamWArgs& args, StreamView stream);
void Run(const SumOfSquaresArgs& args, StreamView stream);
void Run(const ComputeGradientClipArgs& args, StreamView stream);
void Run(const AddArgs& args, StreamView stream);
void Run(const CastArgs& args, StreamView stream);
void Run(const CopyRowsArgs& args, StreamView stream);
void Run(const FillZeroArgs& args, StreamView stream);
void Run(const DigestArgs& args, float* scratch, StreamView stream);

}  // namespace anyorder::kernels::cuda
