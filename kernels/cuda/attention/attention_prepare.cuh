// What attention computes before its large kernels: terms of the scores that do not depend on
// pairs, and where the keys are.

#pragma once

#include "kernels/cuda/attention/attention_key_order.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kPrepareThreads = 128;

// Lanes that share one head's columns, eight each: a power of two, so that a warp has whole heads.
ANYORDER_HOST_DEVICE int LanesOfHead(int head_dim) {
  int lanes = 1;
  while (lanes * kGroup < head_dim) lanes *= 2;
  return lanes;
}
// Which head of all rows (or of all rows of tables) a thread has a part of, and which part.
struct HeadPart {
  int64_t at;
  int lanes;
  int column;
  int count;  // of columns; 0 or less: none

  ANYORDER_DEVICE explicit HeadPart(int head_dim) {
    lanes = LanesOfHead(head_dim);
    at = (int64_t{BlockX()} * kPrepareThreads + Thread()) / lanes;
    column = kGroup * (Thread() % lanes);
    count = head_dim - column < kGroup ? head_dim - column : kGroup;
  }
  ANYORDER_DEVICE bool IsFirst() const { return column == 0; }

  template <typename T>
  ANYORDER_DEVICE Vector8 Load(const T* head, bool is_aligned) const {
    if (head == nullptr || count <= 0) return Vector8{};
    return is_aligned ? LoadGroup<true>(head + column, count)
                      : LoadGroup<false>(head + column, count);
  }
  // Over the lanes of the head; all threads of a warp come.
  ANYORDER_DEVICE float Sum(float value) const {
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      value += ShuffleXor(value, distance);
    return value;
  }
};

ANYORDER_DEVICE float DotOf(const Vector8& a, const Vector8& b) {
  float sum = 0;
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) sum = MultiplyAdd(a.v[i], b.v[i], sum);
  return sum;
}
// a + sign * b
ANYORDER_DEVICE Vector8 Combined(const Vector8& a, float sign, const Vector8& b) {
  Vector8 x;
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) x.v[i] = MultiplyAdd(sign, b.v[i], a.v[i]);
  return x;
}
template <typename T>
ANYORDER_DEVICE const T* HeadOf(const T* row, int64_t offset) {
  return row == nullptr ? nullptr : row + offset;
}

template <typename T>
struct SegmentTermParams {
  AttentionProblem<T> in;
  float* same;        // [N, H]
  float* difference;  // [N, H]
};

template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kPrepareThreads, 8)
    SegmentTermKernel(SegmentTermParams<T> p) {
  const AttentionProblem<T>& in = p.in;
  const HeadPart part(in.head_dim);
  const int64_t offset = part.at % in.num_heads * in.head_dim;
  const bool is_there = part.at < in.num_rows() * in.num_heads;
  const T* const q = is_there ? in.q + part.at * in.head_dim : nullptr;
  const Vector8 left = Combined(part.Load(q, in.is_aligned), 1.0f,
                                part.Load(HeadOf(in.segment_bias, offset), in.is_aligned));
  const Vector8 same = part.Load(in.segment_embedding + offset, in.is_aligned);
  const Vector8 other = part.Load(in.segment_embedding + in.model_dim() + offset, in.is_aligned);
  const float same_sum = part.Sum(DotOf(left, same));
  const float difference = part.Sum(DotOf(left, Combined(other, -1.0f, same)));
  if (!is_there || !part.IsFirst()) return;
  p.same[part.at] = same_sum;
  p.difference[part.at] = difference;
}

template <typename T>
struct DistanceTermParams {
  AttentionProblem<T> in;
  float* terms;  // [num_tables, H, R]
};

// (position_bias - content_bias) . relative
template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kPrepareThreads, 8)
    DistanceTermKernel(DistanceTermParams<T> p) {
  const AttentionProblem<T>& in = p.in;
  const HeadPart part(in.head_dim);
  const int64_t head = part.at % in.num_heads;
  const int64_t row = part.at / in.num_heads;
  const int64_t offset = head * in.head_dim;
  const bool is_there = row < int64_t{in.num_tables} * in.num_distances;
  const T* const relative = is_there ? in.relative + part.at * in.head_dim : nullptr;
  const Vector8 bias = Combined(part.Load(HeadOf(in.position_bias, offset), in.is_aligned), -1.0f,
                                part.Load(HeadOf(in.content_bias, offset), in.is_aligned));
  const float sum = part.Sum(DotOf(bias, part.Load(relative, in.is_aligned)));
  const int64_t table = row / in.num_distances;
  if (is_there && part.IsFirst())
    p.terms[(table * in.num_heads + head) * in.num_distances + row % in.num_distances] = sum;
}

template <typename T>
struct DeltaParams {
  const T* out;
  const T* dout;
  float* delta;   // [N, H]
  int64_t count;  // N * H
  int head_dim;
  bool is_aligned;
};

template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kPrepareThreads, 8) DeltaKernel(DeltaParams<T> p) {
  const HeadPart part(p.head_dim);
  const bool is_there = part.at < p.count;
  const int64_t offset = part.at * p.head_dim;
  const Vector8 out = part.Load(is_there ? p.out + offset : nullptr, p.is_aligned);
  const Vector8 dout = part.Load(is_there ? p.dout + offset : nullptr, p.is_aligned);
  const float sum = part.Sum(DotOf(out, dout));
  if (is_there && part.IsFirst()) p.delta[part.at] = sum;
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

ANYORDER_DEVICE int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
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
