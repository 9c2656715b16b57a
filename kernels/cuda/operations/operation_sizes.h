// How much memory the CUDA backend's operations take for themselves: host code of every build, so
// that a run on GPUs can be planned where there is none.

#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/backend.h"

namespace anyorder::kernels::cuda {

// Elements of `scratch` of operations.h: device memory for partial sums that the backend owns, for
// one operation of a stream at a time.
int64_t LayerNormScratchElements(int64_t columns);
int64_t ColumnSumScratchElements(int64_t rows, int64_t columns);
int64_t EmbeddingBackwardScratchElements(int64_t rows, int64_t columns);
int64_t DigestScratchElements(int64_t bytes);
int64_t AttentionScratchElements(const AttentionShape& shape);
// What Backend::Reserve takes of it.
int64_t ReservedScratchBytes(const OperationSizes& sizes);

// The alignment of a bias, and of a place for sums, as the library of matrix products gets it. It
// reads vectors of this size, and no key tells algorithms by that address.
inline constexpr int kBiasAlignment = 16;
// What it takes for matrix products, whose library asks for so much memory.
struct GemmReserve {
  int64_t workspace;
  int64_t bias;
  int64_t sum;
};
GemmReserve GemmReserveOf(int64_t rows, int64_t columns, int64_t library_bytes);
// cuBLASLt's: what NVIDIA advises for sm_90; sm_80 does with less.
inline constexpr int64_t kCublasLtBytes = int64_t{32} << 20;

// The size of AttentionBackwardArgs::workspace; it grows with rows * keys up to 4 GiB, or what one
// lane and head take.
int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType dtype);
int64_t AttentionPlanBytes(const AttentionShape& shape, DType dtype);
// Logits and their gradients, which overwrite them, are held for at most 3072 rows and 384 MiB at a
// time, 240 MiB of more than 65,536 words (but for 64 rows at least), in the workspace with all
// else that is needed.
int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocab, DType dtype);

}  // namespace anyorder::kernels::cuda
