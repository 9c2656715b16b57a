#include "kernels/cuda/attention/attention_forms.h"
#include "kernels/cuda/attention/attention_general_forward.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

template <typename T>
void LaunchGeneralForward(const AttentionForwardParams<T>& params, StreamView stream) {
  const AttentionProblem<T>& in = params.in;
  WithColumns(in.head_dim, [&]<int kGroups>() {
    const LaunchShape shape{
        .blocks_x =
            RowTileBlocks(RowTilesOfLane(in.content_rows, in.query_rows),
                          int64_t{in.num_heads} * in.batch_size, params.prepared.forms != nullptr),
        .blocks_y = in.num_heads,
        .blocks_z = in.batch_size,
        .threads = kTileThreads,
        .shared_bytes = TileMemory<kGroups>::Bytes(false, in.relative != nullptr)};
    Launch(AttentionGeneralForwardKernel<T, kGroups>, shape, params, stream);
  });
}

template void LaunchGeneralForward(const AttentionForwardParams<float>&, StreamView);
template void LaunchGeneralForward(const AttentionForwardParams<BFloat16>&, StreamView);

}  // namespace anyorder::kernels::cuda
