#include <limits>

#include "kernels/arguments.h"
#include "kernels/cuda/operations/embedding_backward.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/sort.cuh"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

SortBuffers SortBuffersIn(float* scratch, int64_t rows) {
  auto* const arrays = reinterpret_cast<int32_t*>(scratch);
  return {{arrays, arrays + rows},
          {arrays + 2 * rows, arrays + 3 * rows},
          reinterpret_cast<uint32_t*>(arrays + 4 * rows)};
}

}  // namespace

void Run(const EmbeddingBackwardArgs& args, float* scratch, StreamView stream) {
  const int64_t rows = NumRows(args.dy);
  const int64_t columns = NumColumns(args.dy);
  if (rows == 0 || columns == 0) return;
  ANYORDER_CHECK(rows <= std::numeric_limits<int32_t>::max())
      << rows << " rows of a table's gradient";
  const SortBuffers buffers =
      SortBuffersIn(scratch + EmbeddingPartialElements(rows, columns), rows);
  const int sorted =
      SortPlaces(args.ids, rows, static_cast<int32_t>(NumRows(args.dtable)), buffers, stream);
  const LaunchShape shape{.blocks_x = CeilDivide(rows, kRunPiece),
                          .blocks_y = static_cast<int>(CeilDivide(columns, kRunThreads * kGroup)),
                          .threads = kRunThreads};
  const LaunchShape joins{.blocks_x = CeilDivide(rows, kRunPiece),
                          .blocks_y = static_cast<int>(CeilDivide(columns, kWarp * kGroup)),
                          .threads = kJoinThreads,
                          .shared_bytes = kJoinBytes};
  const ConstTensorView partials(scratch, {4});
  const bool is_aligned = AreAligned(columns, args.dy, args.dtable, partials);
  WithForm(args.dy.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
    const RunParams<T> params{buffers.keys[sorted],
                              buffers.values[sorted],
                              args.dy.data<T>(),
                              args.scale,
                              args.dropout,
                              args.row_ids,
                              args.dtable.data<float>(),
                              scratch,
                              rows,
                              static_cast<int>(columns)};
    Launch(SumRunsKernel<T, kAligned>, shape, params, stream);
    Launch(JoinRunsKernel<T, kAligned>, joins, params, stream);
  });
}

}  // namespace anyorder::kernels::cuda
