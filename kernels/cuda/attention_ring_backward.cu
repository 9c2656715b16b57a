#include "kernels/cuda/attention_ring_backward.cuh"
#include "kernels/cuda/launch.h"

namespace anyorder::kernels::cuda {
namespace {

template <typename Tile>
void LaunchTiles(const RingBackwardParams& params, StreamView stream) {
  const AttentionGroup& group = params.call.scores.group;
  Launch(AttentionRingBackwardKernel<Tile>,
         {.blocks_x = int64_t{group.num_lanes} * params.plan.capacity[params.stream],
          .blocks_y = group.num_heads,
          .threads = 2 * Tile::kRows,
          .shared_bytes = RingBackwardMemory<Tile>::Bytes(params.plan.key_tiles)},
         params,
         stream);
}

}  // namespace

void AttentionRingBackward(const AttentionBackwardParams<BFloat16>& params,
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
