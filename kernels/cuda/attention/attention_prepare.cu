// What attention computes before its large kernels: terms of the scores that do not depend on
// pairs, and where the keys are.

#include <bit>

#include "kernels/cuda/attention/attention_key_order.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"
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
  least_base = WarpMin(least_base);
  least_minus_base = WarpMin(least_minus_base);
  low = WarpMin(low);
  minus_high = WarpMin(minus_high);
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
  low = WarpMin(low);
  minus_high = WarpMin(minus_high);
  if (Lane() == 0) p.order.row_ranges[int64_t{lane} * GridX() + BlockX()] = {low, -minus_high};
}

// Sorts the keys of lanes whose positions are not affine in their slots: by position, equal ones by
// slot.
//
// A merge sort in which every key finds its place by itself: in a run twice as long it comes behind
// those of its own run that were before it and those of the neighbouring run that a binary search
// finds before it; of equal keys those of the left run are first. log2(K) passes of K searches, and
// nothing depends on timing. A block sorts kKeySortTile keys in shared memory; longer runs are
// merged in memory, a launch a pass, of which lanes of ordinary length need none.

inline constexpr int kKeySortThreads = 256;
inline constexpr int64_t kKeySortBytes = 4 * kKeySortTile * int64_t{sizeof(int32_t)};

struct KeySortParams {
  const int32_t* keys;   // [B, K]: positions by slot
  const KeyLane* lanes;  // [B]
  int num_keys;
  KeyRuns from;  // only in merges
  KeyRuns to;
  int length;  // of the runs in `from`
};

// Key number `at` of `count` keys, in sorted runs of `length`, a power of two, to its place in runs
// twice as long.
ANYORDER_DEVICE void MergeKey(const KeyRuns& from, const KeyRuns& to, int at, int length,
                              int count) {
  const int first = at & ~(2 * length - 1);
  const int middle = count - first < length ? count : first + length;
  const int end = count - middle < length ? count : middle + length;
  const int32_t pos = from.positions[at];
  const bool is_left = at < middle;
  const int others = is_left ? CountBefore(from.positions + middle, end - middle, pos, false)
                             : CountBefore(from.positions + first, length, pos, true);
  const int place = is_left ? at + others : at - length + others;
  to.positions[place] = pos;
  to.slots[place] = from.slots[at];
}

// The grid is (tiles of kKeySortTile keys; lanes). Shared memory: kKeySortBytes.
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kKeySortThreads, 4) KeyTileSortKernel(KeySortParams p) {
  const int lane = BlockY();
  if (p.lanes[lane].is_affine != 0) return;
  const int first = BlockX() * kKeySortTile;
  const int count = p.num_keys - first < kKeySortTile ? p.num_keys - first : kKeySortTile;
  const int64_t at = int64_t{lane} * p.num_keys + first;
  auto* const shared = reinterpret_cast<int32_t*>(SharedMemory());
  KeyRuns from{shared, shared + kKeySortTile};
  KeyRuns to{shared + 2 * kKeySortTile, shared + 3 * kKeySortTile};
  for (int i = Thread(); i < count; i += kKeySortThreads) {
    from.positions[i] = p.keys[at + i];
    from.slots[i] = first + i;
  }
  SyncBlock();
  for (int length = 1; length < count; length *= 2) {
    for (int i = Thread(); i < count; i += kKeySortThreads) MergeKey(from, to, i, length, count);
    SyncBlock();
    const KeyRuns next = from;
    from = to;
    to = next;
  }
  for (int i = Thread(); i < count; i += kKeySortThreads) {
    p.to.positions[at + i] = from.positions[i];
    p.to.slots[at + i] = from.slots[i];
  }
}

// The grid is (keys; lanes).
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kKeySortThreads, 4) KeyMergeKernel(KeySortParams p) {
  const int lane = BlockY();
  if (p.lanes[lane].is_affine != 0) return;
  const int at = BlockX() * kKeySortThreads + Thread();
  if (at >= p.num_keys) return;
  const int64_t first = int64_t{lane} * p.num_keys;
  MergeKey({p.from.positions + first, p.from.slots + first},
           {p.to.positions + first, p.to.slots + first}, at, p.length, p.num_keys);
}

namespace {

LaunchShape ShapeFor(int64_t heads, int head_dim) {
  return ShapeOfThreads(heads * LanesOfHead(head_dim), kPrepareThreads);
}

// Each merge moves the keys to the other memory; the last one's is order.sorted.
void LaunchKeySort(const int32_t* keys, int batch_size, int num_keys, const KeyOrder& order,
                   StreamView stream) {
  const int64_t tiles = CeilDivide(num_keys, kKeySortTile);
  int merges = tiles == 0 ? 0 : std::bit_width(static_cast<uint64_t>(tiles - 1));
  const auto runs = [&](int merges_left) {
    return merges_left % 2 == 0 ? order.sorted : order.spare;
  };
  KeySortParams params{keys, order.lanes, num_keys, {}, runs(merges), kKeySortTile};
  Launch(KeyTileSortKernel,
         {.blocks_x = tiles,
          .blocks_y = batch_size,
          .threads = kKeySortThreads,
          .shared_bytes = kKeySortBytes},
         params, stream);
  for (; merges > 0; --merges, params.length *= 2) {
    params.from = runs(merges);
    params.to = runs(merges - 1);
    Launch(KeyMergeKernel,
           {.blocks_x = CeilDivide(num_keys, kKeySortThreads),
            .blocks_y = batch_size,
            .threads = kKeySortThreads},
           params, stream);
  }
}

}  // namespace

template <typename T>
void LaunchSegmentTerms(const AttentionProblem<T>& in, float* same, float* difference,
                        StreamView stream) {
  Launch(SegmentTermKernel<T>, ShapeFor(in.num_rows() * in.num_heads, in.head_dim),
         SegmentTermParams<T>{in, same, difference}, stream);
}

template <typename T>
void LaunchDistanceTerms(const AttentionProblem<T>& in, float* terms, StreamView stream) {
  Launch(DistanceTermKernel<T>,
         ShapeFor(int64_t{in.num_tables} * in.num_distances * in.num_heads, in.head_dim),
         DistanceTermParams<T>{in, terms}, stream);
}

template <typename T>
void LaunchDelta(const AttentionProblem<T>& in, const T* out, const T* dout, float* delta,
                 StreamView stream) {
  const int64_t count = in.num_rows() * in.num_heads;
  Launch(DeltaKernel<T>, ShapeFor(count, in.head_dim),
         DeltaParams<T>{out, dout, delta, count, in.head_dim, in.is_aligned}, stream);
}

template <typename T>
void LaunchKeyOrder(const AttentionProblem<T>& in, const KeyOrder& order, StreamView stream) {
  const KeyOrderParams params{in.keys,         in.rows,       in.batch_size, in.num_keys,
                              in.content_rows, in.query_rows, order};
  Launch(KeyLanesKernel, {.blocks_x = in.batch_size, .threads = kWarp}, params, stream);
  LaunchKeySort(in.keys.pos, in.batch_size, in.num_keys, order, stream);
  Launch(RowRangesKernel,
         {.blocks_x = RowSteps(in.content_rows, in.query_rows),
          .blocks_y = in.batch_size,
          .threads = kWarp},
         params, stream);
}

#define ANYORDER_FOR(T)                                                                          \
  template void LaunchSegmentTerms(const AttentionProblem<T>&, float*, float*, StreamView);      \
  template void LaunchDistanceTerms(const AttentionProblem<T>&, float*, StreamView);             \
  template void LaunchDelta(const AttentionProblem<T>&, const T*, const T*, float*, StreamView); \
  template void LaunchKeyOrder(const AttentionProblem<T>&, const KeyOrder&, StreamView);
ANYORDER_FOR(float)
ANYORDER_FOR(BFloat16)
#undef ANYORDER_FOR

}  // namespace anyorder::kernels::cuda
