#include "kernels/arguments.h"
#include "kernels/cuda/operations/layernorm.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/storage.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int kThreads = kNormWarps * kWarp;
constexpr int kColumnThreads = 128;

int64_t BlocksOfRows(int64_t rows) { return CeilDivide(rows, kNormWarps); }

template <typename T>
NormForwardParams<T> ParamsOf(const LayerNormForwardArgs& args) {
  return {args.x.data<T>(),
          args.residual.is_null() ? nullptr : args.residual.data<T>(),
          args.gamma.data<T>(),
          args.beta.data<T>(),
          args.epsilon,
          args.dropout,
          args.row_ids,
          args.sum.data<T>(),
          args.mean.data<float>(),
          args.rstd.data<float>(),
          args.y.data<T>(),
          NumRows(args.x),
          static_cast<int>(NumColumns(args.x))};
}

template <typename T>
NormBackwardParams<T> ParamsOf(const LayerNormBackwardArgs& args, const Scratch& scratch) {
  return {args.dy.data<T>(),
          args.sum.data<T>(),
          args.mean.data<float>(),
          args.rstd.data<float>(),
          args.gamma.data<T>(),
          args.dropout,
          args.row_ids,
          args.dx.data<T>(),
          args.dresidual.is_null() ? nullptr : args.dresidual.data<T>(),
          scratch.data,
          NumRows(args.dy),
          static_cast<int>(NumColumns(args.dy))};
}

}  // namespace

int64_t LayerNormScratchElements(int64_t columns) { return kPartials * 2 * columns; }

void LayerNormForward(const LayerNormForwardArgs& args, StreamView stream) {
  const int64_t columns = NumColumns(args.x);
  const bool is_aligned =
      AreAligned(columns, args.x, args.residual, args.gamma, args.beta, args.sum, args.y);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const NormForwardParams<T> params = ParamsOf<T>(args);
    const LaunchShape shape{.blocks_x = BlocksOfRows(params.rows), .threads = kThreads};
    WithBool(is_aligned, [&]<bool kAligned>() {
      WithBool(columns <= kRegisterColumns, [&]<bool kInRegisters>() {
        Launch(NormForwardKernel<T, kAligned, kInRegisters>, shape, params, stream);
      });
    });
  });
}

void LayerNormBackward(const LayerNormBackwardArgs& args, const Scratch& scratch,
                       StreamView stream) {
  const int64_t columns = NumColumns(args.dy);
  ANYORDER_CHECK(scratch.elements >= LayerNormScratchElements(columns))
      << "scratch of " << scratch.elements << " for " << columns << " columns";
  const bool is_aligned =
      AreAligned(columns, args.dy, args.sum, args.gamma, args.dx, args.dresidual);
  WithStorage(args.dy.dtype(), [&]<typename T>() {
    const NormBackwardParams<T> params = ParamsOf<T>(args, scratch);
    WithBool(is_aligned, [&]<bool kAligned>() {
      if (columns <= kRegisterColumns) {
        const LaunchShape shape{
            .blocks_x = kPartials,
            .threads = kThreads,
            .shared_bytes = kNormWarps * 2 * columns * static_cast<int64_t>(sizeof(float))};
        Launch(NormBackwardKernel<T, kAligned>, shape, params, stream);
        return;
      }
      const LaunchShape by_columns{
          .blocks_x = kPartials,
          .blocks_y = static_cast<int>(CeilDivide(columns, kColumnThreads)),
          .threads = kColumnThreads};
      Launch(NormBackwardColumnsKernel<T>, by_columns, params, stream);
      const LaunchShape by_rows{.blocks_x = BlocksOfRows(params.rows), .threads = kThreads};
      Launch(NormBackwardRowsKernel<T, kAligned>, by_rows, params, stream);
    });
  });
  const NormReduceParams reduce{scratch.data, kPartials, args.dgamma.data<float>(),
                                args.dbeta.data<float>(), static_cast<int>(columns)};
  Launch(NormReduceKernel,
         {.blocks_x = CeilDivide(2 * columns, kWarp),
          .threads = kShareThreads,
          .shared_bytes = kShareBytes},
         reduce, stream);
}

}  // namespace anyorder::kernels::cuda
