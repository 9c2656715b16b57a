// The device operations of the CUDA backend, one function each: they choose the kernel's form and
// launch it. Arguments were checked (kernels/arguments.h); T is fp32 or bf16; all pointers, those
// of ids and rows too, are device pointers.

#pragma once

#include <functional>

#include "core/base/stream.h"
#include "core/base/tensor.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/layernorm.h"
#include "kernels/rotary.h"
#include "kernels/rows.h"

namespace anyorder::kernels::cuda {

// Device memory for partial sums that the backend owns: enough for any operation of the stream, one
// at a time.
struct Scratch {
  float* data = nullptr;
  int64_t elements = 0;
};
// What LayerNormBackward, ColumnSum, EmbeddingBackward and Digest need.
int64_t LayerNormScratchElements(int64_t columns);
int64_t ColumnSumScratchElements(int64_t rows, int64_t columns);
int64_t EmbeddingBackwardScratchElements(int64_t rows, int64_t columns);
int64_t DigestScratchElements(int64_t bytes);
// What AttentionForward needs.
int64_t AttentionScratchElements(const AttentionShape& shape);
// Of AttentionBackwardArgs::workspace; grows with rows * keys up to 4 GiB, or what one lane and
// head take.
int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType dtype);

// How an operation multiplies matrices: the backend's Gemm.
using GemmFunction = std::function<void(const GemmArgs& args, StreamView stream)>;

int64_t AttentionPlanBytes(const AttentionShape& shape, DType dtype);
void PlanAttention(const AttentionPlan& plan, StreamView stream);
void AttentionForward(const AttentionForwardArgs& args, const Scratch& scratch, StreamView stream);
void AttentionBackward(const AttentionBackwardArgs& args, StreamView stream);
void LayerNormForward(const LayerNormForwardArgs& args, StreamView stream);
void LayerNormBackward(const LayerNormBackwardArgs& args, const Scratch& scratch,
                       StreamView stream);
void ActivationForward(const ActivationForwardArgs& args, StreamView stream);
void ActivationBackward(const ActivationBackwardArgs& args, StreamView stream);
void DropoutApply(const DropoutArgs& args, StreamView stream);
void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView stream);
void EmbeddingBackward(const EmbeddingBackwardArgs& args, const Scratch& scratch,
                       StreamView stream);
void GatherRows(const GatherRowsArgs& args, StreamView stream);
void RotaryApply(const RotaryArgs& args, StreamView stream);
// Logits and their gradients, which overwrite them, are held for at most 3072 rows and 384 MiB at a
// time (but for 64 rows at least), in the workspace with all else that is needed.
int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab, DType dtype);
void LinearCrossEntropy(const LinearCrossEntropyArgs& args, const GemmFunction& gemm,
                        StreamView stream);
// Any product without a library, slowly.
void PlainGemm(const GemmArgs& args, StreamView stream);
void ColumnSum(const ColumnSumArgs& args, const Scratch& scratch, StreamView stream);
void AdamW(const AdamWArgs& args, StreamView stream);
void SumOfSquares(const ConstTensorView& x, const TensorView& sums, StreamView stream);
void ComputeGradientClip(const ComputeGradientClipArgs& args, StreamView stream);
void Add(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
         StreamView stream);
void Cast(const ConstTensorView& x, const TensorView& y, StreamView stream);
void CopyRows(const CopyRowsArgs& args, StreamView stream);
void FillZero(const TensorView& x, StreamView stream);
void Digest(const ConstTensorView& x, const TensorView& digest, const Scratch& scratch,
            StreamView stream);

}  // namespace anyorder::kernels::cuda
