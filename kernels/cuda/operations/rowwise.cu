// Element-wise and row-moving operations: activations, dropout, table lookup, gathers, rotary
// positions, column sums.
//
// A thread has one group of 8 neighbouring columns of one row, which is what one Philox call of
// dropout covers. Nothing is summed over threads but in ColumnSum, whose order is fixed by the
// shape.

#include "kernels/activation.h"
#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/partial_sums.cuh"
#include "kernels/cuda/operations/scratch.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kRowwiseThreads = 256;

// The group that thread `index` of a launch over rows x columns has.
struct GroupPlace {
  int64_t row;
  int column;
  int count;
};
ANYORDER_DEVICE bool PlaceOf(int64_t rows, int columns, GroupPlace& place) {
  const int groups = (columns + kGroup - 1) / kGroup;
  const int64_t index = int64_t{BlockX()} * BlockThreads() + Thread();
  const int64_t limit = rows * groups;
  if (index >= limit) return false;
  const Quotient at = Divide(index, groups, limit);
  place.row = at.quotient;
  place.column = static_cast<int>(at.remainder) * kGroup;
  place.count = columns - place.column < kGroup ? columns - place.column : kGroup;
  return true;
}

template <typename T>
struct ActivationParams {
  const T* x;
  const T* dy;      // backward only
  const T* factor;  // of a gated unit, or null
  Dropout dropout;
  const int32_t* row_ids;
  T* out;      // y or dx
  T* dfactor;  // backward of a gated unit
  int64_t rows;
  int columns;
};

// Both forms of GELU are x times a distribution function that does not cancel in the left tail
// (kernels/reference/rows.cc).
template <Activation kActivation>
ANYORDER_DEVICE float Activate(float x) {
  if constexpr (kActivation == Activation::kGeluTanh) {
    const float v = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-2.0f * v));
  } else if constexpr (kActivation == Activation::kGeluErf) {
    return x * (0.5f * erfcf(-0.7071067811865476f * x));
  } else if constexpr (kActivation == Activation::kRelu) {
    return x > 0.0f ? x : 0.0f;
  } else if constexpr (kActivation == Activation::kSilu) {
    return x / (1.0f + expf(-x));
  } else {
    return tanhf(x);
  }
}
template <Activation kActivation>
ANYORDER_DEVICE float ActivateDerivative(float x) {
  if constexpr (kActivation == Activation::kGeluTanh) {
    const float v = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    const float below = 1.0f / (1.0f + expf(-2.0f * v));
    const float above = 1.0f / (1.0f + expf(2.0f * v));
    const float slope = 1.5957691216057308f * (1.0f + 0.134145f * x * x);
    return below + x * below * above * slope;
  } else if constexpr (kActivation == Activation::kGeluErf) {
    return 0.5f * erfcf(-0.7071067811865476f * x) + 0.3989422804014327f * x * expf(-0.5f * x * x);
  } else if constexpr (kActivation == Activation::kRelu) {
    return x > 0.0f ? 1.0f : 0.0f;
  } else if constexpr (kActivation == Activation::kSilu) {
    const float below = 1.0f / (1.0f + expf(-x));
    const float above = 1.0f / (1.0f + expf(x));
    return below + x * below * above;
  } else {
    const float y = tanhf(x);
    return (1.0f - y) * (1.0f + y);
  }
}

// kFactor: of a gated unit.
template <typename T, Activation kActivation, bool kAligned, bool kFactor>
ANYORDER_KERNEL void ActivationForwardKernel(ActivationParams<T> p) {
  GroupPlace place;
  if (!PlaceOf(p.rows, p.columns, place)) return;
  const int64_t at = place.row * p.columns + place.column;
  Vector8 x = LoadGroup<kAligned>(p.x + at, place.count);
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) x.v[i] = Activate<kActivation>(x.v[i]);
  if constexpr (kFactor) Multiply(LoadGroup<kAligned>(p.factor + at, place.count), x);
  ApplyDropout(p.dropout, p.row_ids, place.row, place.column, x);
  StoreGroup<kAligned>(p.out + at, x, place.count);
}

template <typename T, Activation kActivation, bool kAligned, bool kFactor>
ANYORDER_KERNEL void ActivationBackwardKernel(ActivationParams<T> p) {
  GroupPlace place;
  if (!PlaceOf(p.rows, p.columns, place)) return;
  const int64_t at = place.row * p.columns + place.column;
  const Vector8 x = LoadGroup<kAligned>(p.x + at, place.count);
  Vector8 d = LoadGroup<kAligned>(p.dy + at, place.count);
  ApplyDropout(p.dropout, p.row_ids, place.row, place.column, d);
  if constexpr (kFactor) {
    const Vector8 factor = LoadGroup<kAligned>(p.factor + at, place.count);
    Vector8 dfactor = d;
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) dfactor.v[i] *= Activate<kActivation>(x.v[i]);
    StoreGroup<kAligned>(p.dfactor + at, dfactor, place.count);
    Multiply(factor, d);
  }
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) d.v[i] *= ActivateDerivative<kActivation>(x.v[i]);
  StoreGroup<kAligned>(p.out + at, d, place.count);
}

// out = dropout(x).
template <typename T, bool kAligned>
ANYORDER_KERNEL void DropoutKernel(ActivationParams<T> p) {
  GroupPlace place;
  if (!PlaceOf(p.rows, p.columns, place)) return;
  const int64_t at = place.row * p.columns + place.column;
  Vector8 x = LoadGroup<kAligned>(p.x + at, place.count);
  ApplyDropout(p.dropout, p.row_ids, place.row, place.column, x);
  StoreGroup<kAligned>(p.out + at, x, place.count);
}

template <typename T>
struct LookupParams {
  const T* table;
  const int32_t* ids;  // [rows]
  int64_t vocab;
  float scale;
  Dropout dropout;
  const int32_t* row_ids;
  T* y;
  int64_t rows;
  int columns;
};

// y[r] = dropout(scale * table[ids[r]]).
template <typename T, bool kAligned>
ANYORDER_KERNEL void LookupKernel(LookupParams<T> p) {
  GroupPlace place;
  if (!PlaceOf(p.rows, p.columns, place)) return;
  const int64_t id = p.ids[place.row];
  if (id < 0 || id >= p.vocab) Trap("an id is outside the table: check vocabulary and data");
  const int64_t from = id * p.columns + place.column;
  Vector8 x = LoadGroup<kAligned>(p.table + from, place.count);
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) x.v[i] *= p.scale;
  ApplyDropout(p.dropout, p.row_ids, place.row, place.column, x);
  StoreGroup<kAligned>(p.y + place.row * p.columns + place.column, x, place.count);
}

template <typename T>
struct GatherParams {
  const T* x;
  const int32_t* rows;
  int64_t rows_limit;  // each of rows is in [0, rows_limit)
  T* y;
  int64_t num_rows;
  int columns;
};

template <typename T, bool kAligned, bool kScatterAdd>
ANYORDER_KERNEL void GatherKernel(GatherParams<T> p) {
  GroupPlace place;
  if (!PlaceOf(p.num_rows, p.columns, place)) return;
  const int64_t near = place.row * p.columns + place.column;
  const int64_t row = p.rows[place.row];
  if (row < 0 || row >= p.rows_limit) Trap("a gathered or scattered row is outside its matrix");
  const int64_t far = row * p.columns + place.column;
  if constexpr (kScatterAdd) {
    ClaimAlone(p.y + far);
    Vector8 sum = LoadGroup<kAligned>(p.y + far, place.count);
    const Vector8 x = LoadGroup<kAligned>(p.x + near, place.count);
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) sum.v[i] += x.v[i];
    StoreGroup<kAligned>(p.y + far, sum, place.count);
  } else {
    StoreGroup<kAligned>(p.y + near, LoadGroup<kAligned>(p.x + far, place.count), place.count);
  }
}

template <typename T>
struct RotaryParams {
  const T* x;
  const float* angles;  // [rows, head_dim]
  float sign;           // -1: back
  T* y;
  int64_t rows;
  int columns;
  int head_dim;
};

// A thread has one pair (x[f], x[f + D/2]) of one head.
template <typename T>
ANYORDER_KERNEL void RotaryKernel(RotaryParams<T> p) {
  const int half = p.head_dim / 2;
  const int pairs = p.columns / 2;
  const int64_t index = int64_t{BlockX()} * BlockThreads() + Thread();
  const int64_t limit = p.rows * pairs;
  if (index >= limit) return;
  const Quotient place = Divide(index, pairs, limit);
  const int64_t row = place.quotient;
  const int pair = static_cast<int>(place.remainder);
  const int frequency = pair % half;
  const int64_t at = row * p.columns + pair / half * p.head_dim + frequency;
  const float cosine = p.angles[row * p.head_dim + frequency];
  const float sine = p.sign * p.angles[row * p.head_dim + half + frequency];
  const float low = ToFloat(p.x[at]);
  const float high = ToFloat(p.x[at + half]);
  p.y[at] = FromFloat<T>(low * cosine - high * sine);
  p.y[at + half] = FromFloat<T>(high * cosine + low * sine);
}

template <typename T>
struct ColumnSumParams {
  const T* x;
  float* partials;  // [ceil(rows / kColumnSumRows), columns]
  int64_t rows;
  int columns;
};
struct ColumnReduceParams {
  const float* partials;
  int64_t parts;
  float beta;
  float* y;
  int columns;
};

// Block (part, c): rows [part * kColumnSumRows, ...) of a block's worth of columns, one a thread.
template <typename T>
ANYORDER_KERNEL void ColumnSumKernel(ColumnSumParams<T> p) {
  const int column = BlockY() * BlockThreads() + Thread();
  if (column >= p.columns) return;
  const int64_t begin = int64_t{BlockX()} * kColumnSumRows;
  const int64_t end = begin + kColumnSumRows < p.rows ? begin + kColumnSumRows : p.rows;
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) sum += ToFloat(p.x[row * p.columns + column]);
  p.partials[int64_t{BlockX()} * p.columns + column] = sum;
}
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kShareThreads, 2)
    ColumnReduceKernel(ColumnReduceParams p) {
  const ShareOfSums share = SumParts(p.partials, p.parts, p.columns);
  if (!share.is_whole) return;
  float& y = p.y[share.column];
  y = p.beta != 0.0f ? p.beta * y + share.sum : share.sum;
}

namespace {

// One thread for each group of 8 columns.
LaunchShape ShapeOfGroups(int64_t rows, int64_t columns) {
  return ShapeOfThreads(rows * CeilDivide(columns, kGroup), kRowwiseThreads);
}

// Calls function.template operator()<activation>().
template <typename Function>
void WithActivation(Activation activation, Function&& function) {
  switch (activation) {
    case Activation::kGeluTanh: return function.template operator()<Activation::kGeluTanh>();
    case Activation::kGeluErf: return function.template operator()<Activation::kGeluErf>();
    case Activation::kRelu: return function.template operator()<Activation::kRelu>();
    case Activation::kSilu: return function.template operator()<Activation::kSilu>();
    case Activation::kTanh: return function.template operator()<Activation::kTanh>();
  }
}

// What operations on one x with a thread for each group have in common.
template <typename T, typename Args>
ActivationParams<T> ParamsOf(const Args& args, const TensorView& out) {
  return {.x = args.x.template data<T>(),
          .dy = nullptr,
          .factor = nullptr,
          .dropout = args.dropout,
          .row_ids = args.row_ids,
          .out = out.data<T>(),
          .dfactor = nullptr,
          .rows = NumRows(args.x),
          .columns = static_cast<int>(NumColumns(args.x))};
}

}  // namespace

void Run(const ActivationForwardArgs& args, StreamView stream) {
  const int64_t columns = NumColumns(args.x);
  const LaunchShape shape = ShapeOfGroups(NumRows(args.x), columns);
  const bool is_aligned = AreAligned(columns, args.x, args.factor, args.y);
  WithForm(args.x.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
    ActivationParams<T> params = ParamsOf<T>(args, args.y);
    params.factor = DataOrNull<T>(args.factor);
    WithActivation(args.activation, [&]<Activation kActivation>() {
      WithBool(params.factor != nullptr, [&]<bool kFactor>() {
        Launch(ActivationForwardKernel<T, kActivation, kAligned, kFactor>, shape, params, stream);
      });
    });
  });
}

void Run(const ActivationBackwardArgs& args, StreamView stream) {
  const int64_t columns = NumColumns(args.x);
  const LaunchShape shape = ShapeOfGroups(NumRows(args.x), columns);
  const bool is_aligned = AreAligned(columns, args.x, args.dy, args.factor, args.dx, args.dfactor);
  WithForm(args.x.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
    ActivationParams<T> params = ParamsOf<T>(args, args.dx);
    params.dy = args.dy.data<T>();
    params.factor = DataOrNull<T>(args.factor);
    params.dfactor = DataOrNull<T>(args.dfactor);
    WithActivation(args.activation, [&]<Activation kActivation>() {
      WithBool(params.factor != nullptr, [&]<bool kFactor>() {
        Launch(ActivationBackwardKernel<T, kActivation, kAligned, kFactor>, shape, params, stream);
      });
    });
  });
}

void Run(const DropoutArgs& args, StreamView stream) {
  const int64_t columns = NumColumns(args.x);
  const LaunchShape shape = ShapeOfGroups(NumRows(args.x), columns);
  WithForm(args.x.dtype(), AreAligned(columns, args.x, args.y), [&]<typename T, bool kAligned>() {
    Launch(DropoutKernel<T, kAligned>, shape, ParamsOf<T>(args, args.y), stream);
  });
}

void Run(const EmbeddingForwardArgs& args, StreamView stream) {
  const int64_t rows = NumRows(args.y);
  const int64_t columns = NumColumns(args.y);
  const bool is_aligned = AreAligned(columns, args.table, args.y);
  WithForm(args.y.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
    const LookupParams<T> params{args.table.data<T>(), args.ids,     NumRows(args.table),
                                 args.scale,           args.dropout, args.row_ids,
                                 args.y.data<T>(),     rows,         static_cast<int>(columns)};
    Launch(LookupKernel<T, kAligned>, ShapeOfGroups(rows, columns), params, stream);
  });
}

void Run(const GatherRowsArgs& args, StreamView stream) {
  const int64_t columns = NumColumns(args.x);
  const bool is_aligned = AreAligned(columns, args.x, args.y);
  WithForm(args.x.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
    const GatherParams<T> params{args.x.data<T>(),
                                 args.rows,
                                 NumRows(args.scatter_add ? ConstTensorView(args.y) : args.x),
                                 args.y.data<T>(),
                                 args.num_rows,
                                 static_cast<int>(columns)};
    WithBool(args.scatter_add, [&]<bool kScatterAdd>() {
      Launch(GatherKernel<T, kAligned, kScatterAdd>, ShapeOfGroups(args.num_rows, columns), params,
             stream);
    });
  });
}

void Run(const RotaryArgs& args, StreamView stream) {
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
    Launch(RotaryKernel<T>, ShapeOfThreads(rows * (columns / 2), kRowwiseThreads), params, stream);
  });
}

void Run(const ColumnSumArgs& args, float* scratch, StreamView stream) {
  const int64_t rows = NumRows(args.x);
  const int64_t columns = NumColumns(args.x);
  const int64_t parts = CeilDivide(rows, kColumnSumRows);
  const int64_t column_blocks = CeilDivide(columns, kRowwiseThreads);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const ColumnSumParams<T> params{args.x.data<T>(), scratch, rows, static_cast<int>(columns)};
    Launch(ColumnSumKernel<T>,
           {.blocks_x = parts,
            .blocks_y = static_cast<int>(column_blocks),
            .threads = kRowwiseThreads},
           params, stream);
  });
  const ColumnReduceParams reduce{scratch, parts, args.beta, args.y.data<float>(),
                                  static_cast<int>(columns)};
  Launch(ColumnReduceKernel, ShapeOfSums(columns), reduce, stream);
}

}  // namespace anyorder::kernels::cuda
