// Products of gradients with rows, weights^T rows, that the gradients of keys, values and tables
// are: by tensor cores for bf16 and heads of 64 columns, and in fp32 (AddWeighted of
// attention_general.cuh) for everything else.

#pragma once

#include "kernels/cuda/attention/attention_general.cuh"
#include "kernels/cuda/attention/attention_key_order.h"

namespace anyorder::kernels::cuda {

// A tile in shared memory: 64 rows of 64 columns in bf16. Eight rows of ldmatrix meet no bank
// twice.
inline constexpr int kProductRows = 64;
inline constexpr int kProductColumns = 64;
inline constexpr int kProductStride = kProductColumns + 8;
inline constexpr int kProductElements = kProductRows * kProductStride;
inline constexpr int kProductThreads = 128;
// Rows that each thread's copies of a tile are apart.
inline constexpr int kCopyRows = kProductThreads * kGroup / kProductColumns;
inline constexpr uint32_t kTwoOnes = 0x3f803f80u;  // bf16

// A warp's 16 columns of `weights`, each times all columns of `rows`: sum[n][i] belongs to weight
// column Lane() / 4 + 8 (i / 2) and row column 8 n + 2 (Lane() % 4) + i % 2; `weight` has sums of
// the weights alone, at i = 0 and 2.
struct TransposedSums {
  float sum[8][4] = {};
  float weight[4] = {};
};

// += over the tile's 64 rows; the warp's weight columns begin at `first`.
ANYORDER_DEVICE void AddTransposed(const BFloat16* weights, const BFloat16* rows, int first,
                                   TransposedSums& sums) {
  const int weight_row = Lane() % 8 + 8 * (Lane() / 16);
  const int weight_column = first + 8 * (Lane() / 8 % 2);
  const int row = Lane() % 16;
  const int column = 8 * (Lane() / 16);
  ANYORDER_UNROLL
  for (int k = 0; k < kProductRows; k += 16) {
    uint32_t a[4];
    LoadMatricesTransposed(a, weights + (k + weight_row) * kProductStride + weight_column);
    MultiplyAccumulate(sums.weight, a, kTwoOnes, kTwoOnes);
    ANYORDER_UNROLL
    for (int n = 0; n < 4; ++n) {
      uint32_t b[4];
      LoadMatricesTransposed(b, rows + (k + row) * kProductStride + 16 * n + column);
      MultiplyAccumulate(sums.sum[2 * n], a, b[0], b[1]);
      MultiplyAccumulate(sums.sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Which rows a step has, of a lane of the group.
struct RowStep {
  int count;
  int64_t row;        // of the problem
  int64_t group_row;  // of scratch

  template <typename T>
  ANYORDER_DEVICE static RowStep Of(const AttentionProblem<T>& in, const AttentionGroup& group,
                                    int lane, int step) {
    const int content_steps = (in.content_rows + kScoreTile - 1) / kScoreTile;
    const int stream = step < content_steps ? 0 : 1;
    const int first = (step - (stream == 0 ? 0 : content_steps)) * kScoreTile;
    const int left = in.RowsOfStream(stream) - first;
    return {left < kScoreTile ? left : kScoreTile, in.FirstRow(stream, lane) + first,
            group.FirstRow(in, stream, lane) + first};
  }
};

}  // namespace anyorder::kernels::cuda
