// Gradients of attention's parameters from what the larger kernels left: sums in stages, each in an
// order that the shape fixes.

#include "kernels/cuda/attention/attention_key_order.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kColumnThreads = 128;
inline constexpr int kLoads = 8;  // that a thread has under way

ANYORDER_DEVICE int ColumnOfThread() { return BlockX() * BlockThreads() + Thread(); }

// result[chunk] = sum of the rows [chunk * chunk_rows, ...) of a matrix. The grid is (columns,
// chunks).
struct SumRowsParams {
  const float* rows;
  int64_t num_rows;
  int64_t columns;
  int64_t chunk_rows;
  float* result;
};
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kColumnThreads, 8) SumRowsKernel(SumRowsParams p) {
  const int column = ColumnOfThread();
  if (column >= p.columns) return;
  const int64_t first = BlockY() * p.chunk_rows;
  const int64_t end = first + p.chunk_rows < p.num_rows ? first + p.chunk_rows : p.num_rows;
  float sum = 0;
  int64_t row = first;
  for (; row + kLoads <= end; row += kLoads) {
    ANYORDER_UNROLL
    for (int i = 0; i < kLoads; ++i) sum += p.rows[(row + i) * p.columns + column];
  }
  for (; row < end; ++row) sum += p.rows[row * p.columns + column];
  p.result[BlockY() * p.columns + column] = sum;
}

template <typename T>
struct RelativeGradientParams {
  AttentionProblem<T> in;
  int slots;
  const float* sums;     // [slots, num_tables, R, H*D]
  const float* weights;  // [slots, num_tables, H, R]
  T* drelative;          // [num_tables, R, H*D]
  float* position_sums;  // [chunks, H*D]: of weight * relative over kTableChunk rows of the tables;
                         // null without position_bias
};

template <typename T>
ANYORDER_DEVICE float WeightOf(const RelativeGradientParams<T>& p, int64_t row, int head) {
  const AttentionProblem<T>& in = p.in;
  const int64_t table = row / in.num_distances;
  const int64_t at = (table * in.num_heads + head) * in.num_distances + row % in.num_distances;
  const int64_t slot_size = int64_t{in.num_tables} * in.num_heads * in.num_distances;
  float weight = 0;
  for (int slot = 0; slot < p.slots; ++slot) weight += p.weights[slot * slot_size + at];
  return weight;
}

// The slots' sums, and what position_bias adds. The grid is (columns, chunks of the tables' rows).
template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kColumnThreads, 8)
    RelativeGradientKernel(RelativeGradientParams<T> p) {
  const AttentionProblem<T>& in = p.in;
  const int column = ColumnOfThread();
  if (column >= in.model_dim()) return;
  const int64_t rows = int64_t{in.num_tables} * in.num_distances;
  const int64_t first = int64_t{BlockY()} * kTableChunk;
  const int64_t end = first + kTableChunk < rows ? first + kTableChunk : rows;
  const int head = column / in.head_dim;
  const float bias = in.position_bias == nullptr ? 0.0f : ToFloat(in.position_bias[column]);
  float position_sum = 0;
  for (int64_t row = first; row < end; ++row) {
    const int64_t at = row * in.model_dim() + column;
    float sum = 0;
    for (int slot = 0; slot < p.slots; ++slot) sum += p.sums[slot * rows * in.model_dim() + at];
    if (in.position_bias != nullptr) {
      const float weight = WeightOf(p, row, head);
      sum = MultiplyAdd(weight, bias, sum);
      position_sum = MultiplyAdd(weight, ToFloat(in.relative[at]), position_sum);
    }
    p.drelative[at] = FromFloat<T>(sum);
  }
  if (p.position_sums != nullptr)
    p.position_sums[BlockY() * in.model_dim() + column] = position_sum;
}

template <typename T>
struct SegmentGradientParams {
  AttentionProblem<T> in;
  const float* other_segment;  // [N, H]
  float* parts;               // [kSegmentParts, 2, H*D]: of gradient * q, and of the gradient alone
  float* dsegment_embedding;  // [2, H*D]
  float* dsegment_bias;       // [H*D] or null
};

// A block has 256 columns, eight a thread, and kSegmentPhases rows at a time; part b the rows b *
// kSegmentPhases + phase and then every kSegmentParts * kSegmentPhases-th. The grid is (columns,
// parts). Shared memory: what a phase gives to the sum.
inline constexpr int kSegmentGroups = 32;
inline constexpr int kSegmentPhases = 8;
inline constexpr int kSegmentThreads = kSegmentGroups * kSegmentPhases;
inline constexpr int64_t kSegmentBytes = int64_t{kSegmentThreads} * 2 * kGroup * sizeof(float);

template <typename T>
struct SegmentSums {
  Vector8 products = {};
  Vector8 gradients = {};

  ANYORDER_DEVICE void Add(const SegmentGradientParams<T>& p, int64_t row, int column, int count) {
    const AttentionProblem<T>& in = p.in;
    const float* const of_row = p.other_segment + row * in.num_heads;
    const Vector8 q = LoadAny(in.q + row * in.model_dim() + column, count, in.is_aligned);
    const float first = of_row[column / in.head_dim];
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      // Aligned groups are of one head.
      const float gradient =
          in.is_aligned || i >= count ? first : of_row[(column + i) / in.head_dim];
      // A row that sees no other segment may be padding, whose memory may hold anything.
      if (gradient != 0.0f) products.v[i] = MultiplyAdd(gradient, q.v[i], products.v[i]);
      gradients.v[i] += gradient;
    }
  }
};

template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kSegmentThreads, 4)
    SegmentPartKernel(SegmentGradientParams<T> p) {
  const int64_t columns = p.in.model_dim();
  const int group = Thread() % kSegmentGroups;
  const int phase = Thread() / kSegmentGroups;
  const int column = kGroup * (BlockX() * kSegmentGroups + group);
  const int left = static_cast<int>(columns) - column;
  const int count = left < kGroup ? left : kGroup;
  SegmentSums<T> sums;
  if (count > 0) {
    constexpr int kStep = kSegmentParts * kSegmentPhases;
    const int64_t rows = p.in.num_rows();
    for (int64_t row = BlockY() * kSegmentPhases + phase; row < rows; row += kStep)
      sums.Add(p, row, column, count);
  }
  auto* const shared = reinterpret_cast<float*>(SharedMemory());
  StoreVector(shared + 2 * kGroup * Thread(), sums.products);
  StoreVector(shared + 2 * kGroup * Thread() + kGroup, sums.gradients);
  SyncBlock();
  // Thread t has column t of the block's 256, both sums.
  const int own = BlockX() * kSegmentGroups * kGroup + Thread();
  if (own >= columns) return;
  float products = 0;
  float gradients = 0;
  ANYORDER_UNROLL
  for (int i = 0; i < kSegmentPhases; ++i) {
    const int at = 2 * kGroup * (i * kSegmentGroups + Thread() / kGroup) + Thread() % kGroup;
    products += shared[at];
    gradients += shared[at + kGroup];
  }
  float* const part = p.parts + 2 * BlockY() * columns;
  part[own] = products;
  part[columns + own] = gradients;
}

template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kColumnThreads, 8)
    SegmentGradientKernel(SegmentGradientParams<T> p) {
  const AttentionProblem<T>& in = p.in;
  const int64_t columns = in.model_dim();
  const int column = ColumnOfThread();
  if (column >= columns) return;
  float products = 0;
  float sum = 0;
  for (int first = 0; first < kSegmentParts; first += kLoads) {
    ANYORDER_UNROLL
    for (int part = first; part < first + kLoads; ++part) {
      products += p.parts[2 * part * columns + column];
      sum += p.parts[(2 * part + 1) * columns + column];
    }
  }
  const float bias = in.segment_bias == nullptr ? 0.0f : ToFloat(in.segment_bias[column]);
  const float different = MultiplyAdd(sum, bias, products);
  // A row's gradients sum to 0: what its segment gets is minus what the others get.
  p.dsegment_embedding[column] = -different;
  p.dsegment_embedding[columns + column] = different;
  if (p.dsegment_bias != nullptr)
    p.dsegment_bias[column] = sum * (ToFloat(in.segment_embedding[columns + column]) -
                                     ToFloat(in.segment_embedding[column]));
}

inline constexpr int kBiasDistances = 64;  // that a block has
inline constexpr int kBiasPhases = 8;      // threads that share a distance
inline constexpr int kBiasThreads = kBiasDistances * kBiasPhases;

template <typename T>
struct BiasGradientParams {
  AttentionProblem<T> in;
  AttentionScores<T> scores;
  KeyOrder order;
  float* lane_sums;  // [B, R', H]
};

// One lane and head of the gradient of distance_bias. The first and the last distance, which have
// whatever lies beyond, are two blocks of their own, where a row's keys are spread over the
// threads. The grid is (2 + tiles of distances; heads; lanes of the group).
template <typename T>
struct BiasBlock {
  const BiasGradientParams<T>& p;
  int lane;
  int head;

  // Sum over one row's keys in [begin, end) of the order, every `stride`-th.
  ANYORDER_DEVICE float Range(const LaneKeys& keys, const ScoreRow<T>& row, int begin, int end,
                              int stride) const {
    float sum = 0;
    for (int n = begin; n < end; n += stride) {
      const int slot = keys.Slot(n);
      if (row.Has(slot)) sum += ToFloat(row.values[slot]);
    }
    return sum;
  }
  // Sum over the lane's rows i = first, first + stride, ... of visit(row, pos).
  template <typename Visitor>
  ANYORDER_DEVICE float SumRows(int first, int stride, Visitor&& visit) const {
    const AttentionProblem<T>& in = p.in;
    float sum = 0;
    for (int stream = 0; stream < 2; ++stream) {
      const int64_t row = in.FirstRow(stream, lane);
      const int64_t group_row = p.scores.group.FirstRow(in, stream, lane);
      const int rows = in.RowsOfStream(stream);
      for (int i = first; i < rows; i += stride)
        sum += visit(ScoreRow<T>(p.scores, group_row + i, head), int64_t{in.rows.pos[row + i]});
    }
    return sum;
  }
  ANYORDER_DEVICE void Store(int64_t r, float sum) const {
    p.lane_sums[(int64_t{lane} * p.in.num_bias_distances + r) * p.in.num_heads + head] =
        sum / p.in.scale;
  }

  // Distance index 0 (is_last false) or R' - 1.
  ANYORDER_DEVICE void End(bool is_last) const {
    const AttentionProblem<T>& in = p.in;
    const LaneKeys keys(p.order, lane, in.num_keys);
    const int64_t last = in.min_bias_distance + in.num_bias_distances - 1;
    // A warp has every kWarps-th row, its lanes the row's keys.
    constexpr int kWarps = kBiasThreads / kWarp;
    const float own = SumRows(Thread() / kWarp, kWarps, [&](const ScoreRow<T>& row, int64_t pos) {
      const int begin =
          is_last || in.num_bias_distances == 1 ? 0 : keys.CountBelow(pos - in.min_bias_distance);
      const int end = is_last ? keys.CountBelow(pos - last + 1) : in.num_keys;
      return Range(keys, row, begin + Lane(), end, kWarp);
    });
    const float of_warp = WarpSum(own);
    auto* const shared = reinterpret_cast<float*>(SharedMemory());
    if (Lane() == 0) shared[Thread() / kWarp] = of_warp;
    SyncBlock();
    if (Thread() != 0) return;
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp];
    Store(is_last ? in.num_bias_distances - 1 : 0, sum);
  }

  // Distances in between, from index `first` on.
  ANYORDER_DEVICE void Between(int64_t first) const {
    const AttentionProblem<T>& in = p.in;
    const LaneKeys keys(p.order, lane, in.num_keys);
    const int64_t r = first + Thread() % kBiasDistances;
    const int phase = Thread() / kBiasDistances;
    float own = 0;
    if (r < in.num_bias_distances - 1) {
      own = SumRows(phase, kBiasPhases, [&](const ScoreRow<T>& row, int64_t pos) {
        const int64_t key_pos = pos - in.min_bias_distance - r;
        return Range(keys, row, keys.CountBelow(key_pos), keys.CountBelow(key_pos + 1), 1);
      });
    }
    auto* const shared = reinterpret_cast<float*>(SharedMemory());
    shared[Thread()] = own;
    SyncBlock();
    if (phase != 0 || r >= in.num_bias_distances - 1) return;
    float sum = 0;
    for (int i = 0; i < kBiasPhases; ++i) sum += shared[i * kBiasDistances + Thread()];
    Store(r, sum);
  }
};

template <typename T>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kBiasThreads, 2)
    BiasLaneKernel(BiasGradientParams<T> p) {
  const BiasBlock<T> block{p, p.scores.group.first_lane + BlockZ(),
                           p.scores.group.first_head + BlockY()};
  if (BlockX() >= 2) return block.Between(1 + int64_t{BlockX() - 2} * kBiasDistances);
  if (BlockX() == 0 || p.in.num_bias_distances > 1) block.End(BlockX() == 1);
}

struct BiasSumParams {
  const float* lane_sums;  // [B, R', H]
  const int32_t* table_of_lane;
  int batch_size;
  int64_t size;  // R' * H
  float* ddistance_bias;
};
// The lanes of a table in order. The grid is (elements of a table; tables).
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kColumnThreads, 8) BiasSumKernel(BiasSumParams p) {
  const int at = ColumnOfThread();
  if (at >= p.size) return;
  float sum = 0;
  for (int lane = 0; lane < p.batch_size; ++lane) {
    if (p.table_of_lane[lane] == BlockY()) sum += p.lane_sums[lane * p.size + at];
  }
  p.ddistance_bias[BlockY() * p.size + at] = sum;
}

namespace {

LaunchShape ColumnShape(int64_t columns, int64_t rows) {
  return {.blocks_x = CeilDivide(columns, kColumnThreads),
          .blocks_y = static_cast<int>(rows),
          .threads = kColumnThreads};
}

}  // namespace

void LaunchSumRows(const float* rows, int64_t num_rows, int64_t columns, float* parts,
                   float* result, StreamView stream) {
  const int64_t num_parts = SumRowsParts(num_rows);
  Launch(SumRowsKernel, ColumnShape(columns, num_parts),
         SumRowsParams{rows, num_rows, columns, kSumChunk, parts}, stream);
  Launch(SumRowsKernel, ColumnShape(columns, 1),
         SumRowsParams{parts, num_parts, columns, num_parts, result}, stream);
}

template <typename T>
void LaunchRelativeGradient(const AttentionProblem<T>& in, const float* sums, const float* weights,
                            T* drelative, float* position_sums, StreamView stream) {
  const RelativeGradientParams<T> params{
      in, DistanceSlots(in.batch_size), sums, weights, drelative, position_sums};
  Launch(RelativeGradientKernel<T>,
         ColumnShape(in.model_dim(), TableParts(int64_t{in.num_tables} * in.num_distances)), params,
         stream);
}

template <typename T>
void LaunchSegmentGradients(const AttentionProblem<T>& in, const float* other_segment, float* parts,
                            float* dsegment_embedding, float* dsegment_bias, StreamView stream) {
  const SegmentGradientParams<T> params{in, other_segment, parts, dsegment_embedding,
                                        dsegment_bias};
  const LaunchShape shape{.blocks_x = CeilDivide(in.model_dim(), kSegmentGroups * kGroup),
                          .blocks_y = kSegmentParts,
                          .threads = kSegmentThreads,
                          .shared_bytes = kSegmentBytes};
  Launch(SegmentPartKernel<T>, shape, params, stream);
  Launch(SegmentGradientKernel<T>, ColumnShape(in.model_dim(), 1), params, stream);
}

template <typename T>
void LaunchBiasLanes(const AttentionProblem<T>& in, const AttentionScores<T>& scores,
                     const KeyOrder& order, float* lane_sums, StreamView stream) {
  const int64_t between = in.num_bias_distances > 2 ? in.num_bias_distances - 2 : 0;
  const LaunchShape shape{.blocks_x = 2 + CeilDivide(between, kBiasDistances),
                          .blocks_y = scores.group.num_heads,
                          .blocks_z = scores.group.num_lanes,
                          .threads = kBiasThreads,
                          .shared_bytes = kBiasThreads * static_cast<int64_t>(sizeof(float))};
  Launch(BiasLaneKernel<T>, shape, BiasGradientParams<T>{in, scores, order, lane_sums}, stream);
}

template <typename T>
void LaunchBiasGradient(const AttentionProblem<T>& in, const float* lane_sums,
                        float* ddistance_bias, StreamView stream) {
  const int64_t size = int64_t{in.num_bias_distances} * in.num_heads;
  Launch(BiasSumKernel, ColumnShape(size, in.num_tables),
         BiasSumParams{lane_sums, in.table_of_lane, in.batch_size, size, ddistance_bias}, stream);
}

#define ANYORDER_FOR(T)                                                                            \
  template void LaunchRelativeGradient(const AttentionProblem<T>&, const float*, const float*, T*, \
                                       float*, StreamView);                                        \
  template void LaunchSegmentGradients(const AttentionProblem<T>&, const float*, float*, float*,   \
                                       float*, StreamView);                                        \
  template void LaunchBiasLanes(const AttentionProblem<T>&, const AttentionScores<T>&,             \
                                const KeyOrder&, float*, StreamView);                              \
  template void LaunchBiasGradient(const AttentionProblem<T>&, const float*, float*, StreamView);
ANYORDER_FOR(float)
ANYORDER_FOR(BFloat16)
#undef ANYORDER_FOR

}  // namespace anyorder::kernels::cuda
