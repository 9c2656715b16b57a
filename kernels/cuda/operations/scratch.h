// How operations cut up the memory that they take for themselves; host code alone.

#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cuda/platform/launch_shape.h"

namespace anyorder::kernels::cuda {

inline constexpr int kNormParts = 256;      // partial sums of LayerNorm's backward
inline constexpr int kColumnSumRows = 256;  // of one partial sum
inline constexpr int kRunPiece = 64;        // rows of one partial sum of an embedding's gradient
inline constexpr int kDigestThreads = 256;
inline constexpr int kLogitRows = 32;  // of one partial sum of the bias's gradient

// The sort of an embedding's rows.
inline constexpr int kSortThreads = 128;
inline constexpr int kSortItems = 8;  // neighbours that a thread has
inline constexpr int kSortTile = kSortThreads * kSortItems;
inline constexpr int kDigitBits = 5;
inline constexpr int kDigits = 1 << kDigitBits;
constexpr int64_t SortCounts(int64_t n) { return CeilDivide(n, kSortTile) * kDigits; }
// In elements: the partial sums come first, because they are read by 16 bytes.
constexpr int64_t EmbeddingPartialElements(int64_t rows, int64_t columns) {
  return CeilDivide(CeilDivide(rows, kRunPiece) * 2 * columns, 4) * 4;
}

int64_t DigestBlocks(int64_t bytes);

// Of one row: what exp and the sum need not overflow, and no second reading of the row.
struct SoftmaxStatistics {
  float largest;  // logit
  float inverse;  // 1 / sum_j exp(logit_j - largest)
};
// Places in the workspace of the cross-entropy, in bytes.
struct CrossEntropyLayout {
  int64_t chunk_rows;
  int64_t lead_rows;  // of gradients, in front of the logits
  int64_t logits;
  int64_t statistics;
  int64_t partials;
  int64_t bytes;
};
CrossEntropyLayout CrossEntropyLayoutOf(int64_t rows, int64_t vocab, DType dtype);
// Gradients that fit in front of the logits: with an eighth of the rows, four launches turn all of
// them.
constexpr int64_t LeadRows(int64_t rows) {
  return ((rows + 7) / 8 + kLogitRows - 1) / kLogitRows * kLogitRows;
}

}  // namespace anyorder::kernels::cuda
