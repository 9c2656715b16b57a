#include "kernels/cuda/operations/operation_sizes.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/operations/scratch.h"
#include "kernels/digest.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 128;

// Bytes of logits and gradients, but for the few rows that a huge vocabulary gets in any case. Of a
// large vocabulary, as Llama's and its relatives', the whole workspace stays within 256 MiB.
constexpr int64_t LogitBytes(int64_t vocab) {
  constexpr int64_t kLargeVocabulary = 65536;
  return int64_t{vocab > kLargeVocabulary ? 240 : 384} << 20;
}

// Rows whose logits are held at a time. Every chunk reads and writes all of dweight, so few large
// ones are wanted; products like whole tiles of 128 rows.
int64_t ChunkRows(int64_t rows, int64_t vocab, DType dtype) {
  constexpr int64_t kFewest = 64;
  constexpr int64_t kMost = 3072;
  constexpr int64_t kTile = 128;
  const int64_t row_bytes = 4 * std::max<int64_t>(1, vocab);
  // LeadRows takes a sixteenth of the logits, and up to kLogitRows rows more.
  const bool is_converted = dtype != DType::kFloat32;
  const int64_t lead_bytes = is_converted ? row_bytes / 16 : 0;
  const int64_t rounding = is_converted ? kLogitRows * row_bytes / 2 : 0;
  const int64_t fitting = (LogitBytes(vocab) - rounding) / (row_bytes + lead_bytes);
  const int64_t whole = fitting >= kTile ? fitting / kTile * kTile : fitting;
  return std::min(rows, std::clamp(whole, kFewest, kMost));
}

}  // namespace

CrossEntropyLayout CrossEntropyLayoutOf(int64_t rows, int64_t vocab, DType dtype) {
  const auto aligned = [](int64_t bytes) { return CeilDivide(bytes, kAlignment) * kAlignment; };
  const int64_t chunk = ChunkRows(rows, vocab, dtype);
  CrossEntropyLayout layout{};
  layout.chunk_rows = chunk;
  layout.lead_rows = dtype == DType::kFloat32 ? 0 : LeadRows(chunk);
  layout.logits = aligned(layout.lead_rows * vocab * SizeOf(dtype));
  layout.statistics = layout.logits + aligned(chunk * vocab * 4);
  layout.partials =
      layout.statistics + aligned(chunk * static_cast<int64_t>(sizeof(SoftmaxStatistics)));
  layout.bytes = layout.partials + aligned(CeilDivide(chunk, kLogitRows) * vocab * 4);
  return layout;
}

int64_t DigestBlocks(int64_t bytes) {
  constexpr int64_t kWordsPerThread = 4;
  // Several waves of any chip. More would only add to what the last block joins.
  constexpr int64_t kMostBlocks = 2048;
  return std::clamp<int64_t>(CeilDivide(bytes, 8 * kDigestThreads * kWordsPerThread), 1,
                             kMostBlocks);
}

int64_t LayerNormScratchElements(int64_t columns) { return kNormParts * 2 * columns; }

int64_t ColumnSumScratchElements(int64_t rows, int64_t columns) {
  return CeilDivide(rows, kColumnSumRows) * columns;
}

int64_t EmbeddingBackwardScratchElements(int64_t rows, int64_t columns) {
  return EmbeddingPartialElements(rows, columns) + 4 * rows + SortCounts(rows);
}

int64_t DigestScratchElements(int64_t bytes) {
  return DigestBlocks(bytes) * static_cast<int64_t>(sizeof(DigestValue) / sizeof(float));
}

int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t /*columns*/, int64_t vocab,
                                         DType dtype) {
  return CrossEntropyLayoutOf(rows, vocab, dtype).bytes;
}

int64_t ReservedScratchBytes(const OperationSizes& sizes) {
  int64_t elements = std::max({ColumnSumScratchElements(sizes.rows, sizes.columns),
                               LayerNormScratchElements(sizes.columns),
                               EmbeddingBackwardScratchElements(sizes.rows, sizes.columns),
                               DigestScratchElements(std::numeric_limits<int64_t>::max() / 2)});
  for (const AttentionShape& shape : sizes.attention)
    elements = std::max(elements, AttentionScratchElements(shape));
  return elements * static_cast<int64_t>(sizeof(float));
}

GemmReserve GemmReserveOf(int64_t rows, int64_t columns, int64_t library_bytes) {
  // A sum that the library does not make has its partial sums in the workspace.
  const int64_t partials = ColumnSumScratchElements(rows, columns) * SizeOf(DType::kFloat32);
  // Biases of a batch of two begin at whole multiples.
  const int64_t bias = columns * SizeOf(DType::kFloat32) + 2 * kBiasAlignment;
  return {std::max(library_bytes, partials), bias, bias};
}

}  // namespace anyorder::kernels::cuda
