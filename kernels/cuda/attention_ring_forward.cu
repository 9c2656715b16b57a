#include "kernels/cuda/attention_ring_forward.cuh"
#include "kernels/cuda/launch.h"

namespace anyorder::kernels::cuda {
namespace {

template <typename Tile>
void LaunchTiles(const RingForwardParams& params, StreamView stream) {
  const AttentionProblem<BFloat16>& in = params.call.in;
  Launch(AttentionRingForwardKernel<Tile>,
         {.blocks_x = int64_t{in.batch_size} * params.plan.capacity[params.stream],
          .blocks_y = in.num_heads,
          .threads = Tile::kRows,
          .shared_bytes = RingForwardMemory<Tile>::Bytes(params.plan.key_tiles)},
         params,
         stream);
}

}  // namespace

void AttentionRingForward(const AttentionForwardParams<BFloat16>& params,
                          const RingPlan& plan,
                          StreamView stream) {
  if (params.in.relative == nullptr) {
    LaunchTiles<UnplacedContentTile>({params, plan, 0}, stream);
    LaunchTiles<UnplacedQueryTile>({params, plan, 1}, stream);
  } else {
    LaunchTiles<ContentTile>({params, plan, 0}, stream);
    LaunchTiles<TableTile>({params, plan, 1}, stream);
  }
}

}  // namespace anyorder::kernels::cuda
