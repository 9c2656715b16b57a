#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_parameters.cuh"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

LaunchShape ColumnShape(int64_t columns, int64_t rows) {
  return {.blocks_x = CeilDivide(columns, kColumnThreads),
          .blocks_y = static_cast<int>(rows),
          .threads = kColumnThreads};
}

}  // namespace

int64_t TableParts(int64_t rows) { return CeilDivide(rows, kTableChunk); }
int64_t SumRowsParts(int64_t rows) { return CeilDivide(rows, kSumChunk); }

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

int64_t SegmentPartElements(int64_t model_dim) { return kSegmentParts * 2 * model_dim; }

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
