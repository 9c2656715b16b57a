// What attention computes before its large kernels: terms of the scores that do not depend on pairs, and where the keys are.

#pragma once

#include "kernels/cuda/attention_key_order.h"
#include "kernels/cuda/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kPrepareWarps = 4;

// sum over a head's columns of (a + bias) . x, by a warp; a null bias counts as 0.
template <typename T>
ANYORDER_DEVICE float WarpDot(const T* a, const T* bias, const T* x, int columns) {
  float sum = 0;
  for (int d = Lane(); d < columns; d += kWarp) {
    const float left = ToFloat(a[d]) + (bias == nullptr ? 0.0f : ToFloat(bias[d]));
    sum += left * ToFloat(x[d]);
  }
  return WarpSum(sum);
}

template <typename T>
struct SegmentTermParams {
  AttentionProblem<T> in;
  float* same;        // [N, H]
  float* difference;  // [N, H]
};

// A warp for each (row, head).
template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kPrepareWarps* kWarp, 8)
    SegmentTermKernel(SegmentTermParams<T> p) {
  const int64_t at = int64_t{BlockX()} * kPrepareWarps + Thread() / kWarp;
  const AttentionProblem<T>& in = p.in;
  if (at >= in.num_rows() * in.num_heads) return;
  const int head = static_cast<int>(at % in.num_heads);
  const int offset = head * in.head_dim;
  const T* const q = in.q + at / in.num_heads * in.model_dim() + offset;
  const T* const bias = in.segment_bias == nullptr ? nullptr : in.segment_bias + offset;
  const T* const same = in.segment_embedding + offset;
  const float s = WarpDot(q, bias, same, in.head_dim);
  float difference = 0;
  for (int d = Lane(); d < in.head_dim; d += kWarp) {
    const float left = ToFloat(q[d]) + (bias == nullptr ? 0.0f : ToFloat(bias[d]));
    difference += left * (ToFloat(same[in.model_dim() + d]) - ToFloat(same[d]));
  }
  difference = WarpSum(difference);
  if (Lane() != 0) return;
  p.same[at] = s;
  p.difference[at] = difference;
}

template <typename T>
struct DistanceTermParams {
  AttentionProblem<T> in;
  float* terms;  // [num_tables, H, R]
};

// (position_bias - content_bias) . relative: a warp for each (table, distance, head).
template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kPrepareWarps* kWarp, 8)
    DistanceTermKernel(DistanceTermParams<T> p) {
  const int64_t at = int64_t{BlockX()} * kPrepareWarps + Thread() / kWarp;
  const AttentionProblem<T>& in = p.in;
  if (at >= int64_t{in.num_tables} * in.num_distances * in.num_heads) return;
  const int head = static_cast<int>(at % in.num_heads);
  const int64_t row = at / in.num_heads;
  const int offset = head * in.head_dim;
  const T* const relative = in.relative + row * in.model_dim() + offset;
  float sum = 0;
  for (int d = Lane(); d < in.head_dim; d += kWarp) {
    const float position =
        in.position_bias == nullptr ? 0.0f : ToFloat(in.position_bias[offset + d]);
    const float content = in.content_bias == nullptr ? 0.0f : ToFloat(in.content_bias[offset + d]);
    sum += (position - content) * ToFloat(relative[d]);
  }
  sum = WarpSum(sum);
  const int64_t table = row / in.num_distances;
  if (Lane() == 0)
    p.terms[(table * in.num_heads + head) * in.num_distances + row % in.num_distances] = sum;
}

template <typename T>
struct DeltaParams {
  const T* out;
  const T* dout;
  float* delta;   // [N, H]
  int64_t count;  // N * H
  int head_dim;
};

// A warp for each (row, head): heads of a row are neighbours, so this is one stretch of memory after another.
template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kPrepareWarps* kWarp, 8) DeltaKernel(DeltaParams<T> p) {
  const int64_t at = int64_t{BlockX()} * kPrepareWarps + Thread() / kWarp;
  if (at >= p.count) return;
  const float sum =
      WarpDot<T>(p.dout + at * p.head_dim, nullptr, p.out + at * p.head_dim, p.head_dim);
  if (Lane() == 0) p.delta[at] = sum;
}

struct KeyOrderParams {
  KeyVisibility keys;
  RowVisibility rows;
  int batch_size;
  int num_keys;
  int content_rows;
  int query_rows;
  KeyOrder order;
};

ANYORDER_DEVICE int64_t Smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
// The least value of a block of one warp.
ANYORDER_DEVICE int64_t WarpLeast(int64_t value) {
  ANYORDER_UNROLL
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = Smaller(value, ShuffleXor(value, distance));
  return value;
}

// A warp for each lane: whether pos[j] - j is the same for all slots that are not padding.
ANYORDER_KERNEL void KeyLanesKernel(KeyOrderParams p) {
  const int lane = BlockX();
  const int64_t first = int64_t{lane} * p.num_keys;
  int64_t least_base = kNoPosition;
  int64_t least_minus_base = kNoPosition;
  int64_t low = kNoPosition;
  int64_t minus_high = kNoPosition;
  for (int j = Lane(); j < p.num_keys; j += kWarp) {
    if (p.keys.doc[first + j] == kDocPad) continue;
    const int64_t pos = p.keys.pos[first + j];
    least_base = Smaller(least_base, pos - j);
    least_minus_base = Smaller(least_minus_base, j - pos);
    low = Smaller(low, pos);
    minus_high = Smaller(minus_high, -pos);
  }
  least_base = WarpLeast(least_base);
  least_minus_base = WarpLeast(least_minus_base);
  low = WarpLeast(low);
  minus_high = WarpLeast(minus_high);
  if (Lane() != 0) return;
  KeyLane& result = p.order.lanes[lane];
  result.is_affine = least_base == -least_minus_base ? 1 : 0;
  result.base = least_base;
  result.low = low;
  result.high = -minus_high;
}

// Keys of lanes that are not affine, sorted by position, equal ones by slot: a thread for each counts those before it.
ANYORDER_KERNEL void KeySortKernel(KeyOrderParams p) {
  const int lane = BlockY();
  if (p.order.lanes[lane].is_affine != 0) return;
  const int64_t first = int64_t{lane} * p.num_keys;
  const int j = BlockX() * BlockThreads() + Thread();
  if (j >= p.num_keys) return;
  const int32_t pos = p.keys.pos[first + j];
  int rank = 0;
  for (int other = 0; other < p.num_keys; ++other) {
    const int32_t other_pos = p.keys.pos[first + other];
    rank += other_pos < pos || (other_pos == pos && other < j) ? 1 : 0;
  }
  p.order.positions[first + rank] = pos;
  p.order.slots[first + rank] = j;
}

// A warp for each kScoreTile rows of a lane and stream: the range of their positions.
ANYORDER_KERNEL void RowRangesKernel(KeyOrderParams p) {
  const int lane = BlockY();
  const int content_tiles = (p.content_rows + kScoreTile - 1) / kScoreTile;
  const int stream = BlockX() < content_tiles ? 0 : 1;
  const int begin = (BlockX() - (stream == 0 ? 0 : content_tiles)) * kScoreTile;
  const int rows = stream == 0 ? p.content_rows : p.query_rows;
  const int64_t first = stream == 0 ? int64_t{lane} * p.content_rows
                                    : int64_t{p.batch_size} * p.content_rows + int64_t{lane} * rows;
  int64_t low = kNoPosition;
  int64_t minus_high = kNoPosition;
  for (int i = begin + Lane(); i < begin + kScoreTile && i < rows; i += kWarp) {
    low = Smaller(low, p.rows.pos[first + i]);
    minus_high = Smaller(minus_high, -int64_t{p.rows.pos[first + i]});
  }
  low = WarpLeast(low);
  minus_high = WarpLeast(minus_high);
  if (Lane() == 0) p.order.row_ranges[int64_t{lane} * GridX() + BlockX()] = {low, -minus_high};
}

}  // namespace anyorder::kernels::cuda
