// The gradient of a table lookup, summed without atomics: places sorted by id (sort.cuh), then runs of equal ids added up.
//
// Sorted places are cut into pieces of kRunPiece. Whoever has a piece adds the runs inside it to the table; of a run that crosses the
// piece's ends it keeps a partial sum, and the piece where that run begins adds the partial sums in order. So rows of one id are summed
// in increasing order within pieces, pieces in increasing order, and one id that owns most rows is spread over the chip like any others.

#pragma once

#include "kernels/cuda/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kRunThreads = 128;
inline constexpr int kRunPiece = 64;
inline constexpr int kRunBatch = 4;  // rows under way at a time

template <typename T>
struct RunParams {
  const int32_t* ids;   // sorted, [n]
  const int32_t* rows;  // of dy, [n]: increasing within an id
  const T* dy;          // [n, columns]
  float scale;
  Dropout dropout;
  const int32_t* row_ids;
  float* dtable;  // [*, columns], added to
  float*
      partials;  // [pieces, 2, columns]: of the run that enters a piece, and of the one that leaves it
  int64_t n;
  int columns;
};

template <bool kAligned>
ANYORDER_DEVICE void AddToTable(
    float* dtable, int32_t id, int columns, int column, int count, const Vector8& sum) {
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
  for (int i = 0; i < kGroup; ++i)
    x.v[i] *= p.scale;
  if (p.dropout.enabled())
    ApplyDropout(
        p.dropout, static_cast<uint32_t>(p.row_ids[row]), static_cast<uint32_t>(column), x);
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

// The same blocks: those whose last run begins inside and leaves add up its partial sums.
template <typename T, bool kAligned>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kRunThreads, 4) JoinRunsKernel(RunParams<T> p) {
  const int column = (BlockY() * kRunThreads + Thread()) * kGroup;
  if (column >= p.columns) return;
  const int64_t begin = int64_t{BlockX()} * kRunPiece;
  const int64_t end = begin + kRunPiece;
  if (!ContinuesRun(p, end)) return;
  const int32_t id = p.ids[end - 1];
  if (ContinuesRun(p, begin) && p.ids[begin] == id) return;
  const int count = p.columns - column < kGroup ? p.columns - column : kGroup;
  const float* const partials = p.partials + column;
  const int64_t pitch = 2 * int64_t{p.columns};
  Vector8 sum = LoadGroup<kAligned>(partials + BlockX() * pitch + p.columns, count);
  for (int64_t piece = int64_t{BlockX()} + 1; piece * kRunPiece < p.n; piece += kRunBatch) {
    if (p.ids[piece * kRunPiece] != id) break;
    Vector8 x[kRunBatch];
    ANYORDER_UNROLL
    for (int i = 0; i < kRunBatch; ++i) {
      const int64_t place = (piece + i) * kRunPiece;
      x[i] = place < p.n && p.ids[place] == id
                 ? LoadGroup<kAligned>(partials + (piece + i) * pitch, count)
                 : Vector8{};
    }
    ANYORDER_UNROLL
    for (int i = 0; i < kRunBatch; ++i)
      AddTo(x[i], sum);
  }
  AddToTable<kAligned>(p.dtable, id, p.columns, column, count, sum);
}

}  // namespace anyorder::kernels::cuda
