#include "kernels/cuda/attention/attention_ring_backward.cuh"

namespace anyorder::kernels::cuda {

void AttentionRingBackward(const AttentionBackwardParams<BFloat16>& params, const RingPlan& plan,
                           StreamView stream) {
  if (params.in.HasPosition())
    LaunchRingBackward<true>({params, plan}, stream);
  else
    LaunchRingBackward<false>({params, plan}, stream);
}

}  // namespace anyorder::kernels::cuda
