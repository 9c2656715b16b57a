// The device operations of the CUDA backend, a Run for each: they choose the kernel's form and
// launch it. Arguments were checked (kernels/arguments.h); T is fp32 or bf16; all pointers, those
// of ids and rows too, are device pointers.

#pragma once

#include <functional>

#include "core/base/stream.h"
#include "core/base/tensor.h"
#include "kernels/operation.h"

namespace anyorder::kernels::cuda {

// Elements of `scratch` below: device memory for partial sums that the backend owns, for one
// operation of the stream at a time.
int64_t LayerNormScratchElements(int64_t columns);
int64_t ColumnSumScratchElements(int64_t rows, int64_t columns);
int64_t EmbeddingBackwardScratchElements(int64_t rows, int64_t columns);
int64_t DigestScratchElements(int64_t bytes);
int64_t AttentionScratchElements(const AttentionShape& shape);
// The size of AttentionBackwardArgs::workspace; it grows with rows * keys up to 4 GiB, or what one
// lane and head take.
int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType dtype);

// How an operation multiplies matrices: the backend's Gemm.
using GemmFunction = std::function<void(const GemmArgs& args, StreamView stream)>;

int64_t AttentionPlanBytes(const AttentionShape& shape, DType dtype);
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
// Logits and their gradients, which overwrite them, are held for at most 3072 rows and 384 MiB at a
// time, 240 MiB of more than 65,536 words (but for 64 rows at least), in the workspace with all
// else that is needed.
int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab, DType dtype);
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
