#include "kernels/cuda/attention/attention_ring_forward.cuh"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

void AttentionRingForward(const AttentionForwardParams<BFloat16>& params, const RingPlan& plan,
                          StreamView stream) {
  const AttentionProblem<BFloat16>& in = params.in;
  WithBool(params.in.HasPosition(), [&]<bool kHasPosition>() {
    Launch(AttentionRingForwardKernel<kHasPosition>,
           {.blocks_x = RingBlocks(plan, in.batch_size, in.num_heads),
            .threads = kRingForwardThreads,
            .shared_bytes = RingBytes<kHasPosition, RingForwardMemory>(plan.key_tiles)},
           RingForwardParams{params, plan}, stream);
  });
}

}  // namespace anyorder::kernels::cuda
