#include <algorithm>

#include "kernels/arguments.h"
#include "kernels/cuda/operations/cross_entropy.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"

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

// Places in the workspace, in bytes.
struct Layout {
  int64_t chunk_rows;
  int64_t lead_rows;  // of gradients, in front of the logits
  int64_t logits;
  int64_t statistics;
  int64_t partials;
  int64_t bytes;
};
Layout LayoutOf(int64_t rows, int64_t vocab, DType dtype) {
  const auto aligned = [](int64_t bytes) { return CeilDivide(bytes, kAlignment) * kAlignment; };
  const int64_t chunk = ChunkRows(rows, vocab, dtype);
  Layout layout{};
  layout.chunk_rows = chunk;
  layout.lead_rows = dtype == DType::kFloat32 ? 0 : LeadRows(chunk);
  layout.logits = aligned(layout.lead_rows * vocab * SizeOf(dtype));
  layout.statistics = layout.logits + aligned(chunk * vocab * 4);
  layout.partials =
      layout.statistics + aligned(chunk * static_cast<int64_t>(sizeof(SoftmaxStatistics)));
  layout.bytes = layout.partials + aligned(CeilDivide(chunk, kLogitRows) * vocab * 4);
  return layout;
}

// Rows [begin, begin + rows) of the operation, and where they work.
struct Chunk {
  int64_t begin;
  int64_t rows;
  int64_t lead_rows;
  int64_t columns;
  int64_t vocab;
  ConstTensorView x;
  TensorView logits;
  TensorView dlogits;
  SoftmaxStatistics* statistics;
  float* partials;
};

Chunk ChunkAt(const LinearCrossEntropyArgs& args, const Layout& layout, int64_t begin) {
  Chunk chunk{};
  chunk.begin = begin;
  chunk.rows = std::min(layout.chunk_rows, NumRows(args.x) - begin);
  chunk.lead_rows = layout.lead_rows;
  chunk.columns = NumColumns(args.x);
  chunk.vocab = NumRows(args.weight);
  auto* const base = static_cast<char*>(args.workspace.raw());
  chunk.x = args.x.Slice(begin * chunk.columns, {chunk.rows, chunk.columns});
  chunk.logits = TensorView(base + layout.logits, DType::kFloat32, {chunk.rows, chunk.vocab});
  chunk.dlogits = TensorView(base, args.x.dtype(), {chunk.rows, chunk.vocab});
  chunk.statistics = reinterpret_cast<SoftmaxStatistics*>(base + layout.statistics);
  chunk.partials = reinterpret_cast<float*>(base + layout.partials);
  return chunk;
}

template <typename T, bool kAligned>
void LaunchSoftmax(const LinearCrossEntropyArgs& args, const Chunk& chunk, StreamView stream) {
  const SoftmaxParams<T> params{chunk.logits.data<float>(),
                                DataOrNull<T>(args.bias),
                                args.labels + chunk.begin,
                                args.row_weights + chunk.begin,
                                args.loss.data<float>() + chunk.begin,
                                chunk.statistics,
                                static_cast<int>(chunk.vocab)};
  Launch(SoftmaxKernel<T, kAligned>,
         {.blocks_x = chunk.rows,
          .threads = kSoftmaxThreads,
          .shared_bytes = kSoftmaxThreads / kWarp * static_cast<int64_t>(sizeof(RunningSum))},
         params, stream);
}

template <typename T, bool kAligned>
void LaunchGradient(const LinearCrossEntropyArgs& args, const Chunk& chunk, StreamView stream) {
  const bool sums_bias = !args.dbias.is_null();
  LogitGradientParams<T> params{chunk.logits.data<float>(),
                                DataOrNull<T>(args.bias),
                                args.labels + chunk.begin,
                                args.row_weights + chunk.begin,
                                chunk.statistics,
                                chunk.dlogits.data<T>(),
                                sums_bias ? chunk.partials : nullptr,
                                0,
                                0,
                                static_cast<int>(chunk.vocab)};
  while (params.end < chunk.rows) {
    params.begin = params.end;
    params.end = GradientRowsEnd<T>(params.begin, chunk.rows, chunk.lead_rows);
    Launch(LogitGradientKernel<T, kAligned>,
           {.blocks_x = CeilDivide(params.end - params.begin, kLogitRows),
            .blocks_y = static_cast<int>(CeilDivide(chunk.vocab, kLogitThreads * kGroup)),
            .threads = kLogitThreads},
           params, stream);
  }
  if (!sums_bias) return;
  const BiasGradientParams bias{chunk.partials, CeilDivide(chunk.rows, kLogitRows),
                                args.dbias.data<float>(), static_cast<int>(chunk.vocab)};
  Launch(BiasGradientKernel, ShapeOfSums(chunk.vocab), bias, stream);
}

void MultiplyBackward(const LinearCrossEntropyArgs& args, const Chunk& chunk,
                      const GemmFunction& gemm, StreamView stream) {
  const TensorView dx = args.dx.Slice(chunk.begin * chunk.columns, {chunk.rows, chunk.columns});
  gemm({.a = chunk.dlogits, .b = args.weight, .c = dx}, stream);
  if (args.dweight.is_null()) return;
  gemm({.a = chunk.dlogits, .b = chunk.x, .transpose_a = true, .beta = 1.0f, .c = args.dweight},
       stream);
}

}  // namespace

int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows, int64_t /*columns*/, int64_t vocab,
                                         DType dtype) {
  return LayoutOf(rows, vocab, dtype).bytes;
}

void Run(const LinearCrossEntropyArgs& args, const GemmFunction& gemm, StreamView stream) {
  const int64_t rows = NumRows(args.x);
  const Layout layout = LayoutOf(rows, NumRows(args.weight), args.x.dtype());
  for (int64_t begin = 0; begin < rows; begin += layout.chunk_rows) {
    const Chunk chunk = ChunkAt(args, layout, begin);
    gemm({.a = chunk.x, .b = args.weight, .transpose_b = true, .c = chunk.logits}, stream);
    const bool is_aligned = AreAligned(chunk.vocab, chunk.logits, args.bias);
    WithForm(args.x.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
      LaunchSoftmax<T, kAligned>(args, chunk, stream);
      if (!args.dx.is_null()) LaunchGradient<T, kAligned>(args, chunk, stream);
    });
    if (!args.dx.is_null()) MultiplyBackward(args, chunk, gemm, stream);
  }
}

}  // namespace anyorder::kernels::cuda
