#include <bit>

#include "kernels/cuda/attention/attention_key_sort.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_prepare.cuh"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

LaunchShape ShapeFor(int64_t heads, int head_dim) {
  return {.blocks_x = CeilDivide(heads * LanesOfHead(head_dim), kPrepareThreads),
          .threads = kPrepareThreads};
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
