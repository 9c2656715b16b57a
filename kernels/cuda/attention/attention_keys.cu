#include <type_traits>

#include "kernels/cuda/attention/attention_forms.h"
#include "kernels/cuda/attention/attention_keys.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

template <typename T>
int64_t KeyTiles(const AttentionProblem<T>& in) {
  return CeilDivide(in.num_keys, TakesMatrixForm(in) ? kScoreTile : kTileKeys);
}

template <typename T>
void LaunchKeyGradients(const AttentionProblem<T>& in, const AttentionScores<T>& scores,
                        const T* dout, T* dk, T* dv, float* content_sums, StreamView stream) {
  const KeyGradientParams<T> params{in, scores, dout, dk, dv, content_sums};
  LaunchShape shape{.blocks_x = KeyTiles(in),
                    .blocks_y = scores.group.num_heads,
                    .blocks_z = 2 * scores.group.num_lanes,
                    .threads = kTileThreads};
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (TakesMatrixForm(in)) {
      shape.threads = kProductThreads;
      shape.shared_bytes = MatrixKeyBlock::kBytes;
      return Launch(MatrixKeyGradientKernel, shape, params, stream);
    }
  }
  WithColumns(in.head_dim, [&]<int kGroups>() {
    shape.shared_bytes = KeyGradientMemory<kGroups>::kBytes;
    Launch(GeneralKeyGradientKernel<T, kGroups>, shape, params, stream);
  });
}

template int64_t KeyTiles(const AttentionProblem<float>&);
template int64_t KeyTiles(const AttentionProblem<BFloat16>&);
template void LaunchKeyGradients(const AttentionProblem<float>&, const AttentionScores<float>&,
                                 const float*, float*, float*, float*, StreamView);
template void LaunchKeyGradients(const AttentionProblem<BFloat16>&,
                                 const AttentionScores<BFloat16>&, const BFloat16*, BFloat16*,
                                 BFloat16*, float*, StreamView);

}  // namespace anyorder::kernels::cuda
