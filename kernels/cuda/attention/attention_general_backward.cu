#include "kernels/cuda/attention/attention_forms.h"
#include "kernels/cuda/attention/attention_general_backward.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

template <typename T>
void LaunchGeneralBackward(const AttentionBackwardParams<T>& params, StreamView stream) {
  const AttentionProblem<T>& in = params.in;
  const AttentionGroup& group = params.scores.group;
  WithColumns(in.head_dim, [&]<int kGroups>() {
    const LaunchShape shape{
        .blocks_x = RowTileBlocks(RowTilesOfLane(in.content_rows, in.query_rows),
                                  int64_t{group.num_heads} * group.num_lanes,
                                  params.prepared.forms != nullptr),
        .blocks_y = group.num_heads,
        .blocks_z = group.num_lanes,
        .threads = kTileThreads,
        .shared_bytes = TileMemory<kGroups>::Bytes(true, in.relative != nullptr)};
    Launch(AttentionGeneralBackwardKernel<T, kGroups>, shape, params, stream);
  });
}

template void LaunchGeneralBackward(const AttentionBackwardParams<float>&, StreamView);
template void LaunchGeneralBackward(const AttentionBackwardParams<BFloat16>&, StreamView);

}  // namespace anyorder::kernels::cuda
