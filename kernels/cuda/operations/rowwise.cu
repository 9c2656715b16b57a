#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/rowwise.cuh"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/storage.h"

namespace anyorder::kernels::cuda {
namespace {

// One thread for each group of 8 columns.
LaunchShape ShapeOfGroups(int64_t rows, int64_t columns) {
  return {.blocks_x = CeilDivide(rows * CeilDivide(columns, kGroup), kRowwiseThreads),
          .threads = kRowwiseThreads};
}

// Calls function.template operator()<activation>().
template <typename Function>
void WithActivation(Activation activation, Function&& function) {
  switch (activation) {
    case Activation::kGeluTanh: return function.template operator()<Activation::kGeluTanh>();
    case Activation::kGeluErf: return function.template operator()<Activation::kGeluErf>();
    case Activation::kRelu: return function.template operator()<Activation::kRelu>();
    case Activation::kTanh: return function.template operator()<Activation::kTanh>();
  }
}

// Of operations on one x: `dy` is null but for a gradient, and `out` is where results go.
template <typename T, typename Args>
ActivationParams<T> ParamsOf(const Args& args, ConstTensorView dy, TensorView out) {
  return {args.x.template data<T>(),
          dy.is_null() ? nullptr : dy.data<T>(),
          args.dropout,
          args.row_ids,
          out.data<T>(),
          NumRows(args.x),
          static_cast<int>(NumColumns(args.x))};
}

}  // namespace

void ActivationForward(const ActivationForwardArgs& args, StreamView stream) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const auto params = ParamsOf<T>(args, {}, args.y);
    WithBool(AreAligned(params.columns, args.x, args.y), [&]<bool kAligned>() {
      WithActivation(args.activation, [&]<Activation kActivation>() {
        Launch(ActivationForwardKernel<T, kActivation, kAligned>,
               ShapeOfGroups(params.rows, params.columns), params, stream);
      });
    });
  });
}

void ActivationBackward(const ActivationBackwardArgs& args, StreamView stream) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const auto params = ParamsOf<T>(args, args.dy, args.dx);
    WithBool(AreAligned(params.columns, args.x, args.dy, args.dx), [&]<bool kAligned>() {
      WithActivation(args.activation, [&]<Activation kActivation>() {
        Launch(ActivationBackwardKernel<T, kActivation, kAligned>,
               ShapeOfGroups(params.rows, params.columns), params, stream);
      });
    });
  });
}

void DropoutApply(const DropoutArgs& args, StreamView stream) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const auto params = ParamsOf<T>(args, {}, args.y);
    WithBool(AreAligned(params.columns, args.x, args.y), [&]<bool kAligned>() {
      Launch(DropoutKernel<T, kAligned>, ShapeOfGroups(params.rows, params.columns), params,
             stream);
    });
  });
}

void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView stream) {
  const int64_t rows = NumRows(args.y);
  const int64_t columns = NumColumns(args.y);
  WithStorage(args.y.dtype(), [&]<typename T>() {
    const LookupParams<T> params{args.table.data<T>(), args.ids,     NumRows(args.table),
                                 args.scale,           args.dropout, args.row_ids,
                                 args.y.data<T>(),     rows,         static_cast<int>(columns)};
    WithBool(AreAligned(columns, args.table, args.y), [&]<bool kAligned>() {
      Launch(LookupKernel<T, kAligned>, ShapeOfGroups(rows, columns), params, stream);
    });
  });
}

void GatherRows(const GatherRowsArgs& args, StreamView stream) {
  const int64_t columns = NumColumns(args.x);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const GatherParams<T> params{args.x.data<T>(),
                                 args.rows,
                                 NumRows(args.scatter_add ? ConstTensorView(args.y) : args.x),
                                 args.y.data<T>(),
                                 args.num_rows,
                                 static_cast<int>(columns)};
    WithBool(AreAligned(columns, args.x, args.y), [&]<bool kAligned>() {
      WithBool(args.scatter_add, [&]<bool kScatterAdd>() {
        Launch(GatherKernel<T, kAligned, kScatterAdd>, ShapeOfGroups(args.num_rows, columns),
               params, stream);
      });
    });
  });
}

void RotaryApply(const RotaryArgs& args, StreamView stream) {
  const int64_t rows = NumRows(args.x);
  const int64_t columns = NumColumns(args.x);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const RotaryParams<T> params{args.x.data<T>(),
                                 args.angles.data<float>(),
                                 args.inverse ? -1.0f : 1.0f,
                                 args.y.data<T>(),
                                 rows,
                                 static_cast<int>(columns),
                                 static_cast<int>(NumColumns(args.angles))};
    const LaunchShape shape{.blocks_x = CeilDivide(rows * (columns / 2), kRowwiseThreads),
                            .threads = kRowwiseThreads};
    Launch(RotaryKernel<T>, shape, params, stream);
  });
}

int64_t ColumnSumScratchElements(int64_t rows, int64_t columns) {
  return CeilDivide(rows, kColumnSumRows) * columns;
}

void ColumnSum(const ColumnSumArgs& args, const Scratch& scratch, StreamView stream) {
  const int64_t rows = NumRows(args.x);
  const int64_t columns = NumColumns(args.x);
  ANYORDER_CHECK(scratch.elements >= ColumnSumScratchElements(rows, columns))
      << "scratch of " << scratch.elements << " for " << rows << " x " << columns;
  const int64_t parts = CeilDivide(rows, kColumnSumRows);
  const int64_t column_blocks = CeilDivide(columns, kRowwiseThreads);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const ColumnSumParams<T> params{args.x.data<T>(), scratch.data, rows,
                                    static_cast<int>(columns)};
    Launch(ColumnSumKernel<T>,
           {.blocks_x = parts,
            .blocks_y = static_cast<int>(column_blocks),
            .threads = kRowwiseThreads},
           params, stream);
  });
  const ColumnReduceParams reduce{scratch.data, parts, args.beta, args.y.data<float>(),
                                  static_cast<int>(columns)};
  Launch(ColumnReduceKernel,
         {.blocks_x = CeilDivide(columns, kWarp),
          .threads = kShareThreads,
          .shared_bytes = kShareBytes},
         reduce, stream);
}

}  // namespace anyorder::kernels::cuda
