// The gradient of a table lookup, summed without atomics: places sorted by id (sort.cuh), then runs
// of equal ids added up.
//
// Sorted places are cut into pieces of kRunPiece. Whoever has a piece adds the runs inside it to
// the table; of a run that crosses the piece's ends it keeps a partial sum, and the piece where
// that run begins adds the partial sums: its warps have contiguous shares of them, joined in order.
// So the order of sums follows from the ids alone, and one id that owns most rows is spread over
// the chip like any others.

#pragma once

#include "kernels/cuda/operations/scratch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kRunThreads = 128;
inline constexpr int kRunBatch = 4;  // rows under way at a time
inline constexpr int kJoinWarps = 8;
inline constexpr int kJoinThreads = kJoinWarps * kWarp;
inline constexpr int kJoinBatch = 8;  // partial sums under way at a time

template <typename T>
struct RunParams {
  const int32_t* ids;   // sorted, [n]
  const int32_t* rows;  // of dy, [n]: increasing within an id
  const T* dy;          // [n, columns]
  float scale;
  Dropout dropout;
  const int32_t* row_ids;
  float* dtable;    // [*, columns], added to
  float* partials;  // [pieces, 2, columns]: of the run that enters a piece, and of the one that
                    // leaves it
  int64_t n;
  int columns;
};

template <bool kAligned>
ANYORDER_DEVICE void AddToTable(float* dtable, int32_t id, int columns, int column, int count,
                                const Vector8& sum) {
  float* const at = dtable + int64_t{id} * columns + column;
  Vector8 entry = LoadGroup<kAligned>(at, count);
  AddTo(sum, entry);
  StoreGroup<kAligned>(at, entry, count);
}

// Whether the sorted place `at` and the one before have the same id.
template <typename T>
ANYORDER_DEVICE bool ContinuesRun(const RunParams<T>& p, int64_t at) {
  return at > 0 && at < p.n && p.ids[at] == p.ids[at - 1];
}

// scale * dropout'(dy) of a row.
template <typename T, bool kAligned>
ANYORDER_DEVICE Vector8 GradientOfRow(const RunParams<T>& p, int64_t at, int column, int count) {
  const int32_t row = p.rows[at];
  Vector8 x = LoadGroup<kAligned>(p.dy + int64_t{row} * p.columns + column, count);
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) x.v[i] *= p.scale;
  ApplyDropout(p.dropout, p.row_ids, row, column, x);
  return x;
}

// Block (piece, c): one group of 8 columns a thread.
template <typename T, bool kAligned>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kRunThreads, 4) SumRunsKernel(RunParams<T> p) {
  const int column = (BlockY() * kRunThreads + Thread()) * kGroup;
  if (column >= p.columns) return;
  const int count = p.columns - column < kGroup ? p.columns - column : kGroup;
  const int64_t begin = int64_t{BlockX()} * kRunPiece;
  const int64_t end = begin + kRunPiece < p.n ? begin + kRunPiece : p.n;
  float* const partials = p.partials + int64_t{BlockX()} * 2 * p.columns + column;
  bool enters = ContinuesRun(p, begin);
  Vector8 sum = {};
  for (int64_t first = begin; first < end; first += kRunBatch) {
    Vector8 x[kRunBatch];
    ANYORDER_UNROLL
    for (int i = 0; i < kRunBatch; ++i) {
      if (first + i < end) x[i] = GradientOfRow<T, kAligned>(p, first + i, column, count);
    }
    ANYORDER_UNROLL
    for (int i = 0; i < kRunBatch; ++i) {
      const int64_t at = first + i;
      if (at >= end) continue;
      AddTo(x[i], sum);
      const bool leaves = at + 1 == end && ContinuesRun(p, end);
      if (at + 1 < end && ContinuesRun(p, at + 1)) continue;
      if (enters) {
        StoreGroup<kAligned>(partials, sum, count);
      } else if (leaves) {
        StoreGroup<kAligned>(partials + p.columns, sum, count);
      } else {
        AddToTable<kAligned>(p.dtable, p.ids[at], p.columns, column, count, sum);
      }
      enters = false;
      sum = {};
    }
  }
}

// The last piece that begins with `id`, given that `first` does.
template <typename T>
ANYORDER_DEVICE int64_t LastPieceOf(const RunParams<T>& p, int32_t id, int64_t first) {
  int64_t last = first;
  int64_t beyond = (p.n + kRunPiece - 1) / kRunPiece;
  while (beyond - last > 1) {
    const int64_t middle = last + (beyond - last) / 2;
    (p.ids[middle * kRunPiece] == id ? last : beyond) = middle;
  }
  return last;
}

// The sum of what enters the pieces [begin, end).
template <typename T, bool kAligned>
ANYORDER_DEVICE Vector8 SumOfPieces(const RunParams<T>& p, int64_t begin, int64_t end, int column,
                                    int count) {
  const int64_t pitch = 2 * int64_t{p.columns};
  const float* const partials = p.partials + column;
  Vector8 sum = {};
  for (int64_t first = begin; first < end; first += kJoinBatch) {
    Vector8 x[kJoinBatch];
    ANYORDER_UNROLL
    for (int i = 0; i < kJoinBatch; ++i)
      x[i] =
          first + i < end ? LoadGroup<kAligned>(partials + (first + i) * pitch, count) : Vector8{};
    ANYORDER_UNROLL
    for (int i = 0; i < kJoinBatch; ++i) AddTo(x[i], sum);
  }
  return sum;
}

// Block (piece, c): 32 groups of 8 columns, one a lane. Those of pieces whose last run begins
// inside and leaves add up its partial sums, a contiguous share a warp. Shared memory: kJoinBytes.
inline constexpr int64_t kJoinBytes = kJoinThreads * static_cast<int64_t>(sizeof(Vector8));
template <typename T, bool kAligned>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kJoinThreads, 2) JoinRunsKernel(RunParams<T> p) {
  const int64_t begin = int64_t{BlockX()} * kRunPiece;
  const int64_t end = begin + kRunPiece;
  if (!ContinuesRun(p, end)) return;
  const int32_t id = p.ids[end - 1];
  if (ContinuesRun(p, begin) && p.ids[begin] == id) return;
  const int warp = Thread() / kWarp;
  const int column = (BlockY() * kWarp + Lane()) * kGroup;
  const int count = p.columns - column < kGroup ? p.columns - column : kGroup;
  const int64_t first = int64_t{BlockX()} + 1;
  const int64_t pieces = LastPieceOf(p, id, first) + 1 - first;
  const int64_t share = (pieces + kJoinWarps - 1) / kJoinWarps;
  const int64_t from = warp * share < pieces ? warp * share : pieces;
  const int64_t to = from + share < pieces ? from + share : pieces;
  auto* const shares = reinterpret_cast<Vector8*>(SharedMemory());
  if (count > 0)
    shares[Thread()] = SumOfPieces<T, kAligned>(p, first + from, first + to, column, count);
  SyncBlock();
  if (warp != 0 || count <= 0) return;
  Vector8 sum =
      LoadGroup<kAligned>(p.partials + (int64_t{BlockX()} * 2 + 1) * p.columns + column, count);
  for (int w = 0; w < kJoinWarps; ++w) AddTo(shares[w * kWarp + Lane()], sum);
  AddToTable<kAligned>(p.dtable, id, p.columns, column, count, sum);
}

}  // namespace anyorder::kernels::cuda
