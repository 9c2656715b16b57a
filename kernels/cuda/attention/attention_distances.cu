#include <type_traits>

#include "kernels/cuda/attention/attention_distances.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
template <typename T>
void LaunchDistanceSums(const AttentionProblem<T>& in, const AttentionScores<T>& scores,
                        const KeyOrder& order, float* sums, float* weights, StreamView stream) {
  const int slots = DistanceSlots(in.batch_size);
  const DistanceGradientParams<T> params{in,   scores, order, slots, scores.group.first_lane > 0,
                                         sums, weights};
  const bool is_matrix = TakesMatrixForm(in);
  LaunchShape shape{
      .blocks_x = CeilDivide(in.num_distances, is_matrix ? kProductColumns : kTileKeys),
      .blocks_y = scores.group.num_heads,
      .blocks_z = slots * in.num_tables,
      .threads = kTileThreads};
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (is_matrix) {
      shape.threads = kProductThreads;
      shape.shared_bytes = MatrixDistanceBlock::kBytes;
      return Launch(MatrixDistanceGradientKernel, shape, params, stream);
    }
  }
  WithColumns(in.head_dim, [&]<int kGroups>() {
    shape.shared_bytes = DistanceMemory<kGroups>::kBytes;
    Launch(GeneralDistanceGradientKernel<T, kGroups>, shape, params, stream);
  });
}

#define ANYORDER_FOR(T)                                                                   \
  template void LaunchDistanceSums(const AttentionProblem<T>&, const AttentionScores<T>&, \
                                   const KeyOrder&, float*, float*, StreamView);
ANYORDER_FOR(float)
ANYORDER_FOR(BFloat16)
#undef ANYORDER_FOR

}  // namespace anyorder::kernels::cuda
