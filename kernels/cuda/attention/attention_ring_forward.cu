#include "kernels/cuda/attention/attention_ring_forward.cuh"

namespace anyorder::kernels::cuda {

void AttentionRingForward(const AttentionForwardParams<BFloat16>& params, const RingPlan& plan,
                          StreamView stream) {
  if (params.in.HasPosition())
    LaunchRingForward<true>({params, plan}, stream);
  else
    LaunchRingForward<false>({params, plan}, stream);
}

}  // namespace anyorder::kernels::cuda
