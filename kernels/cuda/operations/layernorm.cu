// Residual + dropout + LayerNorm or RMSNorm, both ways, in one pass over the data
// (kernels/rows.h). kRms: RMSNorm; mean and beta are null, and so are their gradients.
//
// A warp has a row. Rows of up to kRegisterColumns columns stay in its registers between the passes
// over them (forward reads two and writes two matrices, backward reads two and writes two); longer
// ones are read again. The gradients of gamma and beta are partial sums of a fixed number of
// blocks, each over the rows b, b + kNormParts, ..., added in an order of their own
// (partial_sums.cuh): the same bits on every GPU.

#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/partial_sums.cuh"
#include "kernels/cuda/operations/scratch.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kNormWarps = 4;       // rows that a block has at a time
inline constexpr int kRegisterGroups = 4;  // groups of 8 columns that a lane keeps
inline constexpr int kRegisterColumns = kRegisterGroups * kGroup * kWarp;

template <typename T>
struct NormForwardParams {
  const T* x;
  const T* residual;  // or null
  const T* gamma;
  const T* beta;
  float epsilon;
  Dropout dropout;
  const int32_t* row_ids;
  T* sum;
  float* mean;
  float* rstd;
  T* y;
  int64_t rows;
  int columns;
};

template <typename T>
struct NormBackwardParams {
  const T* dy;
  const T* sum;
  const float* mean;
  const float* rstd;
  const T* gamma;
  Dropout dropout;
  const int32_t* row_ids;
  T* dx;
  T* dresidual;     // or null
  float* partials;  // [kNormParts, 2, columns]
  int64_t rows;
  int columns;
};

struct NormReduceParams {
  const float* partials;  // [blocks, 2, columns]
  int blocks;
  float* dgamma;
  float* dbeta;
  int columns;
};

// The groups of a row that a lane has, at columns 8 (lane + 32 g) and on: visit(g, column, count)
// for each. kInRegisters: columns <= kRegisterColumns, and g numbers what is kept.
template <bool kInRegisters, typename Visitor>
ANYORDER_DEVICE void ForEachGroup(int columns, Visitor&& visit) {
  if constexpr (kInRegisters) {
    ANYORDER_UNROLL
    for (int g = 0; g < kRegisterGroups; ++g) {
      const int column = kGroup * (Lane() + kWarp * g);
      const int count = columns - column < kGroup ? columns - column : kGroup;
      if (count > 0) visit(g, column, count);
    }
  } else {
    for (int column = kGroup * Lane(); column < columns; column += kGroup * kWarp)
      visit(0, column, columns - column < kGroup ? columns - column : kGroup);
  }
}

template <typename T, bool kAligned, bool kRms>
struct NormRowForward {
  const NormForwardParams<T>& p;
  int64_t row;

  // sum = residual + dropout(x) of one group, stored and as stored.
  ANYORDER_DEVICE Vector8 Sum(int column, int count) const {
    const int64_t at = row * p.columns + column;
    Vector8 x = LoadGroup<kAligned>(p.x + at, count);
    ApplyDropout(p.dropout, p.row_ids, row, column, x);
    if (p.residual != nullptr) {
      const Vector8 base = LoadGroup<kAligned>(p.residual + at, count);
      ANYORDER_UNROLL
      for (int i = 0; i < kGroup; ++i) x.v[i] += base.v[i];
    }
    StoreGroup<kAligned>(p.sum + at, x, count);
    return Rounded<T>(x);
  }
  ANYORDER_DEVICE void Normalise(const Vector8& x, float mean, float rstd, int column,
                                 int count) const {
    const Vector8 gamma = LoadGroup<kAligned>(p.gamma + column, count);
    Vector8 y;
    if constexpr (kRms) {
      ANYORDER_UNROLL
      for (int i = 0; i < kGroup; ++i) y.v[i] = x.v[i] * rstd;
      y = Rounded<T>(y);
      ANYORDER_UNROLL
      for (int i = 0; i < kGroup; ++i) y.v[i] *= gamma.v[i];
    } else {
      const Vector8 beta = LoadGroup<kAligned>(p.beta + column, count);
      ANYORDER_UNROLL
      for (int i = 0; i < kGroup; ++i) y.v[i] = (x.v[i] - mean) * rstd * gamma.v[i] + beta.v[i];
    }
    StoreGroup<kAligned>(p.y + row * p.columns + column, y, count);
  }
};

// Deviations from a first mean, whose rounding their own mean corrects.
struct NormMoments {
  float deviation = 0;
  float squares = 0;

  ANYORDER_DEVICE void Add(const Vector8& x, float first_mean, int count) {
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      const float d = i < count ? x.v[i] - first_mean : 0.0f;
      deviation += d;
      squares = MultiplyAdd(d, d, squares);
    }
  }
};

ANYORDER_DEVICE float SumOf(const Vector8& x) {
  return ((x.v[0] + x.v[1]) + (x.v[2] + x.v[3])) + ((x.v[4] + x.v[5]) + (x.v[6] + x.v[7]));
}

// kInRegisters: columns <= kRegisterColumns.
template <typename T, bool kAligned, bool kInRegisters, bool kRms>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kNormWarps* kWarp, 4)
    NormForwardKernel(NormForwardParams<T> p) {
  const int64_t row = int64_t{BlockX()} * kNormWarps + Thread() / kWarp;
  if (row >= p.rows) return;
  const NormRowForward<T, kAligned, kRms> work{p, row};
  const float n = static_cast<float>(p.columns);
  Vector8 kept[kRegisterGroups];
  float total = 0;
  ForEachGroup<kInRegisters>(p.columns, [&](int g, int column, int count) {
    const Vector8 sum = work.Sum(column, count);
    if constexpr (kInRegisters) kept[g] = sum;
    total += SumOf(sum);
  });
  const float first_mean = kRms ? 0.0f : WarpSum(total) / n;
  const auto sum_of = [&](int g, int column, int count) {
    if constexpr (kInRegisters) return kept[g];
    return LoadGroup<kAligned>(p.sum + row * p.columns + column, count);
  };
  NormMoments moments;
  ForEachGroup<kInRegisters>(p.columns, [&](int g, int column, int count) {
    moments.Add(sum_of(g, column, count), first_mean, count);
  });
  const float correction = kRms ? 0.0f : WarpSum(moments.deviation) / n;
  const float variance = fmaxf(WarpSum(moments.squares) / n - correction * correction, 0.0f);
  const float mean = first_mean + correction;
  const float rstd = 1.0f / sqrtf(variance + p.epsilon);
  ForEachGroup<kInRegisters>(p.columns, [&](int g, int column, int count) {
    work.Normalise(sum_of(g, column, count), mean, rstd, column, count);
  });
  if (Lane() == 0) {
    if constexpr (!kRms) p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
}

template <typename T, bool kAligned>
struct NormRowBackward {
  const NormBackwardParams<T>& p;
  int64_t row;
  float mean;
  float rstd;

  // dy and xhat of one group.
  ANYORDER_DEVICE void Load(int column, int count, Vector8& dy, Vector8& xhat) const {
    const int64_t at = row * p.columns + column;
    dy = LoadGroup<kAligned>(p.dy + at, count);
    xhat = LoadGroup<kAligned>(p.sum + at, count);
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) xhat.v[i] = i < count ? (xhat.v[i] - mean) * rstd : 0.0f;
  }
  ANYORDER_DEVICE void Store(const Vector8& dy, const Vector8& xhat, const Vector8& gamma,
                             float mean_g, float mean_g_xhat, int column, int count) const {
    const int64_t at = row * p.columns + column;
    Vector8 d;
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i)
      d.v[i] = rstd * (gamma.v[i] * dy.v[i] - mean_g - xhat.v[i] * mean_g_xhat);
    if (p.dresidual != nullptr) StoreGroup<kAligned>(p.dresidual + at, d, count);
    ApplyDropout(p.dropout, p.row_ids, row, column, d);
    StoreGroup<kAligned>(p.dx + at, d, count);
  }
};

ANYORDER_DEVICE void AddProducts(const Vector8& a, const Vector8& b, Vector8& sums) {
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) sums.v[i] = MultiplyAdd(a.v[i], b.v[i], sums.v[i]);
}

// Rows of up to kRegisterColumns columns: dx and the partial sums of gamma's and beta's gradients.
// Block b, warp w takes the rows b * kNormWarps + w + k * kNormParts * kNormWarps. Shared memory:
// [kNormWarps, 2, columns] floats.
template <typename T, bool kAligned, bool kRms>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kNormWarps* kWarp, 2)
    NormBackwardKernel(NormBackwardParams<T> p) {
  const int warp = Thread() / kWarp;
  const float n = static_cast<float>(p.columns);
  Vector8 dgamma[kRegisterGroups] = {};
  Vector8 dbeta[kRegisterGroups] = {};
  Vector8 gamma[kRegisterGroups] = {};
  ForEachGroup<true>(p.columns, [&](int g, int column, int count) {
    gamma[g] = LoadGroup<kAligned>(p.gamma + column, count);
  });
  for (int64_t row = int64_t{BlockX()} * kNormWarps + warp; row < p.rows;
       row += int64_t{GridX()} * kNormWarps) {
    const NormRowBackward<T, kAligned> work{p, row, kRms ? 0.0f : p.mean[row], p.rstd[row]};
    Vector8 dy[kRegisterGroups];
    Vector8 xhat[kRegisterGroups];
    float sum_g = 0;
    float sum_g_xhat = 0;
    ForEachGroup<true>(p.columns, [&](int g, int column, int count) {
      work.Load(column, count, dy[g], xhat[g]);
      AddProducts(dy[g], xhat[g], dgamma[g]);
      if constexpr (!kRms) AddTo(dy[g], dbeta[g]);
      ANYORDER_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        const float product = gamma[g].v[i] * dy[g].v[i];
        sum_g += product;
        sum_g_xhat = MultiplyAdd(product, xhat[g].v[i], sum_g_xhat);
      }
    });
    const float mean_g = kRms ? 0.0f : WarpSum(sum_g) / n;
    const float mean_g_xhat = WarpSum(sum_g_xhat) / n;
    ForEachGroup<true>(p.columns, [&](int g, int column, int count) {
      work.Store(dy[g], xhat[g], gamma[g], mean_g, mean_g_xhat, column, count);
    });
  }
  float* const shared = reinterpret_cast<float*>(SharedMemory());
  ForEachGroup<true>(p.columns, [&](int g, int column, int count) {
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      if (i >= count) continue;
      shared[(2 * warp) * p.columns + column + i] = dgamma[g].v[i];
      shared[(2 * warp + 1) * p.columns + column + i] = dbeta[g].v[i];
    }
  });
  SyncBlock();
  for (int c = Thread(); c < 2 * p.columns; c += BlockThreads()) {
    float sum = 0;
    for (int w = 0; w < kNormWarps; ++w) sum += shared[2 * w * p.columns + c];
    p.partials[int64_t{BlockX()} * 2 * p.columns + c] = sum;
  }
}

// Longer rows: dx alone.
template <typename T, bool kAligned, bool kRms>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kNormWarps* kWarp, 4)
    NormBackwardRowsKernel(NormBackwardParams<T> p) {
  const int64_t row = int64_t{BlockX()} * kNormWarps + Thread() / kWarp;
  if (row >= p.rows) return;
  const float n = static_cast<float>(p.columns);
  const NormRowBackward<T, kAligned> work{p, row, kRms ? 0.0f : p.mean[row], p.rstd[row]};
  const auto for_each = [&](auto&& visit) {
    ForEachGroup<false>(p.columns, [&](int, int column, int count) {
      Vector8 dy;
      Vector8 xhat;
      work.Load(column, count, dy, xhat);
      visit(dy, xhat, LoadGroup<kAligned>(p.gamma + column, count), column, count);
    });
  };
  float sum_g = 0;
  float sum_g_xhat = 0;
  for_each([&](const Vector8& dy, const Vector8& xhat, const Vector8& gamma, int, int) {
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      const float product = gamma.v[i] * dy.v[i];
      sum_g += product;
      sum_g_xhat = MultiplyAdd(product, xhat.v[i], sum_g_xhat);
    }
  });
  const float mean_g = kRms ? 0.0f : WarpSum(sum_g) / n;
  const float mean_g_xhat = WarpSum(sum_g_xhat) / n;
  for_each([&](const Vector8& dy, const Vector8& xhat, const Vector8& gamma, int column,
               int count) { work.Store(dy, xhat, gamma, mean_g, mean_g_xhat, column, count); });
}

// Their gamma and beta, before dx may overwrite dy: block (b, c) sums the rows b, b + kNormParts,
// ... of 128 columns, one a thread.
template <typename T, bool kRms>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(128, 4)
    NormBackwardColumnsKernel(NormBackwardParams<T> p) {
  const int column = BlockY() * BlockThreads() + Thread();
  if (column >= p.columns) return;
  float dgamma = 0;
  float dbeta = 0;
  for (int64_t row = BlockX(); row < p.rows; row += GridX()) {
    const int64_t at = row * p.columns + column;
    const float dy = ToFloat(p.dy[at]);
    const float mean = kRms ? 0.0f : p.mean[row];
    dgamma = MultiplyAdd(dy, (ToFloat(p.sum[at]) - mean) * p.rstd[row], dgamma);
    dbeta += dy;
  }
  float* const partial = p.partials + int64_t{BlockX()} * 2 * p.columns;
  partial[column] = dgamma;
  partial[p.columns + column] = dbeta;
}

ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kShareThreads, 2) NormReduceKernel(NormReduceParams p) {
  const ShareOfSums share = SumParts(p.partials, p.blocks, 2 * int64_t{p.columns});
  if (!share.is_whole) return;
  if (share.column < p.columns) {
    p.dgamma[share.column] = share.sum;
  } else if (p.dbeta != nullptr) {
    p.dbeta[share.column - p.columns] = share.sum;
  }
}

namespace {

constexpr int kThreads = kNormWarps * kWarp;
constexpr int kColumnThreads = 128;

int64_t BlocksOfRows(int64_t rows) { return CeilDivide(rows, kNormWarps); }

template <typename T>
NormForwardParams<T> ParamsOf(const LayerNormForwardArgs& args) {
  return {args.x.data<T>(),
          DataOrNull<T>(args.residual),
          args.gamma.data<T>(),
          DataOrNull<T>(args.beta),
          args.epsilon,
          args.dropout,
          args.row_ids,
          args.sum.data<T>(),
          DataOrNull<float>(args.mean),
          args.rstd.data<float>(),
          args.y.data<T>(),
          NumRows(args.x),
          static_cast<int>(NumColumns(args.x))};
}

template <typename T>
NormBackwardParams<T> ParamsOf(const LayerNormBackwardArgs& args, float* scratch) {
  return {args.dy.data<T>(),
          args.sum.data<T>(),
          DataOrNull<float>(args.mean),
          args.rstd.data<float>(),
          args.gamma.data<T>(),
          args.dropout,
          args.row_ids,
          args.dx.data<T>(),
          DataOrNull<T>(args.dresidual),
          scratch,
          NumRows(args.dy),
          static_cast<int>(NumColumns(args.dy))};
}

}  // namespace

void Run(const LayerNormForwardArgs& args, StreamView stream) {
  const int64_t columns = NumColumns(args.x);
  const bool is_aligned =
      AreAligned(columns, args.x, args.residual, args.gamma, args.beta, args.sum, args.y);
  WithForm(args.x.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
    const NormForwardParams<T> params = ParamsOf<T>(args);
    const LaunchShape shape{.blocks_x = BlocksOfRows(params.rows), .threads = kThreads};
    WithBool(columns <= kRegisterColumns, [&]<bool kInRegisters>() {
      WithBool(args.mean.is_null(), [&]<bool kRms>() {
        Launch(NormForwardKernel<T, kAligned, kInRegisters, kRms>, shape, params, stream);
      });
    });
  });
}

namespace {

template <typename T, bool kAligned, bool kRms>
void LaunchBackward(const NormBackwardParams<T>& params, StreamView stream) {
  const int64_t columns = params.columns;
  if (columns <= kRegisterColumns) {
    const LaunchShape shape{
        .blocks_x = kNormParts,
        .threads = kThreads,
        .shared_bytes = kNormWarps * 2 * columns * static_cast<int64_t>(sizeof(float))};
    Launch(NormBackwardKernel<T, kAligned, kRms>, shape, params, stream);
    return;
  }
  const LaunchShape by_columns{.blocks_x = kNormParts,
                               .blocks_y = static_cast<int>(CeilDivide(columns, kColumnThreads)),
                               .threads = kColumnThreads};
  Launch(NormBackwardColumnsKernel<T, kRms>, by_columns, params, stream);
  const LaunchShape by_rows{.blocks_x = BlocksOfRows(params.rows), .threads = kThreads};
  Launch(NormBackwardRowsKernel<T, kAligned, kRms>, by_rows, params, stream);
}

}  // namespace

void Run(const LayerNormBackwardArgs& args, float* scratch, StreamView stream) {
  const int64_t columns = NumColumns(args.dy);
  const bool is_aligned =
      AreAligned(columns, args.dy, args.sum, args.gamma, args.dx, args.dresidual);
  WithForm(args.dy.dtype(), is_aligned, [&]<typename T, bool kAligned>() {
    WithBool(args.mean.is_null(), [&]<bool kRms>() {
      LaunchBackward<T, kAligned, kRms>(ParamsOf<T>(args, scratch), stream);
    });
  });
  const NormReduceParams reduce{scratch, kNormParts, args.dgamma.data<float>(),
                                DataOrNull<float>(args.dbeta), static_cast<int>(columns)};
  Launch(NormReduceKernel, ShapeOfSums(2 * columns), reduce, stream);
}

}  // namespace anyorder::kernels::cuda
