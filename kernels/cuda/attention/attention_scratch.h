// How attention cuts up the memory it is lent, and what tests and measurements ask of it.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "core/base/dtype.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_ring.h"

namespace anyorder::kernels::cuda {

// Hands out pieces of a stretch of memory, each at a multiple of `alignment` bytes. Without memory
// it only counts.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* memory, int64_t alignment = 128)
      : memory_(static_cast<unsigned char*>(memory)), alignment_(alignment) {}

  template <typename T>
  T* Take(int64_t count) {
    unsigned char* const piece = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + alignment_ - 1) / alignment_ * alignment_;
    return reinterpret_cast<T*>(piece);
  }
  int64_t bytes() const { return bytes_; }

 private:
  unsigned char* memory_;
  int64_t alignment_;
  int64_t bytes_ = 0;
};

// What both passes prepare. Pieces are there whether the problem has their term or not: the shape
// alone decides.
struct PreparedScratch {
  float* distance_terms;      // [num_tables, H, R]
  float* segment_same;        // [N, H]
  float* segment_difference;  // [N, H]
  unsigned char* ring_plan;   // RingPlanBytes

  PreparedScratch(const AttentionShape& shape, ScratchCutter& cutter)
      : distance_terms(
            cutter.Take<float>(shape.num_tables * shape.num_heads * shape.num_distances)),
        segment_same(cutter.Take<float>(shape.num_rows() * shape.num_heads)),
        segment_difference(cutter.Take<float>(shape.num_rows() * shape.num_heads)),
        ring_plan(cutter.Take<unsigned char>(RingPlanBytes(shape))) {}
};

inline KeyOrder TakeKeyOrder(const AttentionShape& s, ScratchCutter& cutter) {
  KeyOrder order;
  order.lanes = cutter.Take<KeyLane>(s.batch_size);
  for (int32_t** keys : {&order.sorted.positions, &order.sorted.slots})
    *keys = cutter.Take<int32_t>(s.batch_size * s.num_keys);
  for (int32_t** keys : {&order.spare.positions, &order.spare.slots})
    *keys = cutter.Take<int32_t>(KeySortSpare(s.batch_size, s.num_keys));
  order.row_ranges = cutter.Take<PositionRange>(
      s.batch_size * RowSteps(static_cast<int>(s.content_rows), static_cast<int>(s.query_rows)));
  return order;
}

// Whether some term depends on distance, and backward on where the keys are.
inline bool HasDistances(const AttentionShape& s) {
  return s.num_tables > 0 && s.num_distances + s.num_bias_distances > 0;
}

// AttentionPlan::memory, in pieces, of those calls that need them: the ring kernels' plan, and the
// order of keys.
struct PlanPieces {
  unsigned char* ring = nullptr;  // RingPlanBytes
  KeyOrder order = {};

  PlanPieces(const AttentionShape& shape, DType dtype, ScratchCutter& cutter) {
    if (dtype == DType::kBFloat16) ring = cutter.Take<unsigned char>(RingPlanBytes(shape));
    if (HasDistances(shape)) order = TakeKeyOrder(shape, cutter);
  }
};

// Backward goes through (lanes, heads) in groups, so that probabilities and their gradients, which
// have an element for each pair, stay within a limit: all heads of as many lanes as fit, else as
// many heads of one lane, at least one. A group has all heads that share keys and values, or some
// of one key/value head alone. The shape decides alone.
inline constexpr int64_t kMostScoreBytes = int64_t{4} << 30;

struct GroupSizes {
  int lanes;
  int heads;

  // What one lane and head take.
  static int64_t ScoreBytes(const AttentionShape& shape, DType dtype) {
    const int64_t row = 2 * PaddedKeys(shape.num_keys) * SizeOf(dtype) + 2 * SizeOf(DType::kInt32);
    return (shape.content_rows + shape.query_rows) * row;
  }

  static GroupSizes Of(const AttentionShape& shape, DType dtype, int64_t most_bytes) {
    const int64_t of_head = std::max<int64_t>(1, ScoreBytes(shape, dtype));
    int64_t heads = std::clamp<int64_t>(most_bytes / of_head, 1, shape.num_heads);
    if (heads > shape.heads_per_kv()) heads -= heads % shape.heads_per_kv();
    const int64_t lanes = heads < shape.num_heads ? 1 : most_bytes / (of_head * heads);
    return {static_cast<int>(std::clamp<int64_t>(
                lanes, 1, std::clamp<int64_t>(shape.batch_size, 1, kMostLanes))),
            static_cast<int>(heads)};
  }

  bool SplitsKvHeads(const AttentionShape& shape) const { return heads < shape.heads_per_kv(); }
  // Behind the last head of the group that begins with head `first`.
  int EndHead(const AttentionShape& shape, int first) const {
    const int64_t shared = shape.heads_per_kv();
    const int64_t limit = SplitsKvHeads(shape) ? (first / shared + 1) * shared : shape.num_heads;
    return static_cast<int>(std::min<int64_t>(first + heads, limit));
  }

 private:
  static constexpr int64_t kMostLanes = 32767;  // two blocks each in a grid's last dimension
};

// AttentionBackwardArgs::workspace, in pieces.
template <typename T>
struct BackwardScratch {
  PreparedScratch prepared;
  float* delta;          // [N, H]
  float* other_segment;  // [N, H]
  KeyOrder order;
  float* key_sums;          // [2, B, K, D] if groups split key/value heads (KeyGradientParams)
  float* content_sums;      // [B, tiles of 32 keys, H*D]
  float* content_parts;     // its sums' first stage
  float* distance_sums;     // [slots, num_tables, R, H*D]
  float* distance_weights;  // [slots, num_tables, H, R]
  float* position_sums;
  float* position_parts;
  float* segment_parts;
  float* bias_lanes;  // [B, R', H]
  // The scratch of one group.
  T* probabilities;
  T* gradients;
  int32_t* hulls;

  BackwardScratch(const AttentionShape& s, const GroupSizes& group, ScratchCutter& cutter)
      : prepared(s, cutter) {
    const int64_t stats = s.num_rows() * s.num_heads;
    const int64_t m = s.model_dim();
    const int64_t table_rows = s.num_tables * s.num_distances;
    const int64_t slots = DistanceSlots(s.batch_size);
    const int64_t content_rows = s.batch_size * ((s.num_keys + 31) / 32);
    delta = cutter.Take<float>(stats);
    other_segment = cutter.Take<float>(stats);
    order = TakeKeyOrder(s, cutter);
    key_sums =
        cutter.Take<float>(group.SplitsKvHeads(s) ? 2 * s.batch_size * s.num_keys * s.head_dim : 0);
    content_sums = cutter.Take<float>(content_rows * m);
    content_parts = cutter.Take<float>(SumRowsParts(content_rows) * m);
    distance_sums = cutter.Take<float>(slots * table_rows * m);
    distance_weights = cutter.Take<float>(slots * table_rows * s.num_heads);
    position_sums = cutter.Take<float>(TableParts(table_rows) * m);
    position_parts = cutter.Take<float>(SumRowsParts(TableParts(table_rows)) * m);
    segment_parts = cutter.Take<float>(SegmentPartElements(m));
    bias_lanes = cutter.Take<float>(s.batch_size * s.num_bias_distances * s.num_heads);
    const int64_t rows =
        group.lanes * (s.content_rows + s.query_rows) * static_cast<int64_t>(group.heads);
    probabilities = cutter.Take<T>(rows * PaddedKeys(s.num_keys));
    gradients = cutter.Take<T>(rows * PaddedKeys(s.num_keys));
    hulls = cutter.Take<int32_t>(2 * rows);
  }
};

// What operations.h declares, with another limit of the scores.
int64_t AttentionBackwardBytesWithin(const AttentionShape& shape, DType dtype, int64_t most_bytes);
void AttentionBackwardWithin(const AttentionBackwardArgs& args, int64_t most_bytes,
                             StreamView stream);

// Tells a benchmark which pass of backward comes next. Training sets none.
//
// Called before a pass is asked of `stream`; "" after the last. Several groups of lanes and heads
// name their passes again.
using PassObserver = std::function<void(const char* pass, StreamView stream)>;

// The observer of this thread's calls; null: none.
inline PassObserver& AttentionPassObserver() {
  static thread_local PassObserver observer;
  return observer;
}
inline void BeginAttentionPass(const char* pass, StreamView stream) {
  if (const PassObserver& observer = AttentionPassObserver()) observer(pass, stream);
}

}  // namespace anyorder::kernels::cuda
