#include "kernels/cuda/attention_forms.h"
#include "kernels/cuda/attention_general_backward.cuh"
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/launch.h"

namespace anyorder::kernels::cuda {

template <typename T>
void LaunchGeneralBackward(const AttentionBackwardParams<T>& params, StreamView stream) {
  const AttentionProblem<T>& in = params.in;
  WithColumns(in.head_dim, [&]<int kGroups>() {
    const LaunchShape shape{
        .blocks_x = RowTilesOfLane(in.content_rows, in.query_rows),
        .blocks_y = params.scores.group.num_heads,
        .blocks_z = params.scores.group.num_lanes,
        .threads = kTileThreads,
        .shared_bytes = TileMemory<kGroups>::Bytes(true, in.relative != nullptr)};
    Launch(AttentionGeneralBackwardKernel<T, kGroups>, shape, params, stream);
  });
}

template void LaunchGeneralBackward(const AttentionBackwardParams<float>&, StreamView);
template void LaunchGeneralBackward(const AttentionBackwardParams<BFloat16>&, StreamView);

}  // namespace anyorder::kernels::cuda
