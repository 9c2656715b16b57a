#include <algorithm>

#include "kernels/arguments.h"
#include "kernels/cuda/operations/cross_entropy.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

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

Chunk ChunkAt(const LinearCrossEntropyArgs& args, const CrossEntropyLayout& layout, int64_t begin) {
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

void Run(const LinearCrossEntropyArgs& args, const GemmFunction& gemm, StreamView stream) {
  const int64_t rows = NumRows(args.x);
  const CrossEntropyLayout layout =
      CrossEntropyLayoutOf(rows, NumRows(args.weight), args.x.dtype());
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
