#include "kernels/cuda/attention/attention_ring_backward.cuh"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

void AttentionRingBackward(const AttentionBackwardParams<BFloat16>& params, const RingPlan& plan,
                           StreamView stream) {
  const AttentionGroup& group = params.scores.group;
  WithBool(params.in.HasPosition(), [&]<bool kHasPosition>() {
    Launch(AttentionRingBackwardKernel<kHasPosition>,
           {.blocks_x = RingBlocks(plan, group.num_lanes, group.num_heads),
            .threads = kRingBackwardThreads,
            .shared_bytes = RingBytes<kHasPosition, RingBackwardMemory>(plan.key_tiles)},
           RingBackwardParams{params, plan}, stream);
  });
}

}  // namespace anyorder::kernels::cuda
