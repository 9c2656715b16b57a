// Attention forward for any arguments of the contract: softmax over tiles of keys as they come, in
// fp32.

#include "kernels/cuda/attention/attention_general_tile.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

// What a thread knows of its rows so far; `sum` and the weighted values are relative to 2^max,
// `sum` over the thread's own keys.
template <int kGroups>
struct RunningSoftmax {
  float max[kThreadRows];
  float sum[kThreadRows] = {};
  float values[kThreadRows][4 * kGroups] = {};

  ANYORDER_DEVICE RunningSoftmax() {
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) max[r] = -INFINITY;
  }

  // From scores to probabilities relative to the new maximum, 0 where not visible.
  ANYORDER_DEVICE void Add(uint32_t visible, PairValues& s) {
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      float largest = max[r];
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) {
        if (visible >> (kThreadKeys * r + c) & 1) largest = fmaxf(largest, s.v[r][c]);
      }
      largest = RowMax(largest);
      // Where nothing was seen yet, or only scores of minus infinity, everything stays 0. A NaN is
      // no maximum, but makes its exponential and all sums a NaN.
      const float offset = largest == -INFINITY ? 0.0f : largest;
      const float factor = Exp2(max[r] - offset);
      max[r] = largest;
      ANYORDER_UNROLL
      for (int d = 0; d < 4 * kGroups; ++d) values[r][d] *= factor;
      float added = 0.0f;
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) {
        const bool is_visible = (visible >> (kThreadKeys * r + c) & 1) != 0;
        s.v[r][c] = is_visible ? Exp2(s.v[r][c] - offset) : 0.0f;
        added += s.v[r][c];
      }
      sum[r] = MultiplyAdd(sum[r], factor, added);
    }
  }
};

template <typename T, int kGroups>
ANYORDER_DEVICE void ForwardHalf(const GeneralTile<T, kGroups>& work, int first, int half,
                                 uint32_t visible, RunningSoftmax<kGroups>& softmax) {
  const AttentionProblem<T>& in = work.in;
  work.LoadKeys(in.k, first, half);
  const TileBand band = work.LoadBand(half);
  SyncBlock();
  PairValues p = work.Scores(band, half, visible);
  softmax.Add(visible, p);
  if (in.dropout.enabled()) {
    const PairValues factors = work.DropoutFactors(first + half * kTileKeys);
    ANYORDER_UNROLL
    for (int r = 0; r < kThreadRows; ++r) {
      ANYORDER_UNROLL
      for (int c = 0; c < kThreadKeys; ++c) p.v[r][c] *= factors.v[r][c];
    }
  }
  StorePairs(work.memory.scores, p);
  SyncBlock();
  work.LoadKeys(in.v, first, half);
  SyncBlock();
  AddWeighted<kGroups>(work.memory.scores, work.memory.keys, softmax.values);
}

template <typename T, int kGroups>
ANYORDER_DEVICE void ForwardTile(const AttentionForwardParams<T>& p, const RowTile& tile) {
  const AttentionProblem<T>& in = p.in;
  const GeneralTile<T, kGroups> work(in, p.prepared, tile, false);
  work.LoadRows();
  RunningSoftmax<kGroups> softmax;
  for (int first = 0; first < in.num_keys; first += kScoreTile) {
    // No barrier before: since the last one nobody has read slots of keys.
    work.LoadKeySlots(first);
    SyncBlock();
    for (int half = 0; half < 2; ++half) {
      const uint32_t visible = work.VisiblePairs(half);
      if (SyncBlockOr(visible != 0)) ForwardHalf(work, first, half, visible, softmax);
    }
  }
  ANYORDER_UNROLL
  for (int r = 0; r < kThreadRows; ++r) {
    const float sum = RowSum(softmax.sum[r]);
    // A NaN's sum is not 0: it goes on to the results.
    const bool sees = sum != 0.0f;
    const float factor = sees ? 1.0f / sum : 0.0f;
    ANYORDER_UNROLL
    for (int d = 0; d < 4 * kGroups; ++d)
      softmax.values[r][d] = sees ? softmax.values[r][d] * factor : 0.0f;
    const int row = ThreadRow() + r;
    if (ThreadKey(0) == 0 && row < tile.count)
      p.lse[(tile.row + row) * in.num_heads + tile.head] =
          sees ? MultiplyAdd(softmax.max[r], kLn2, logf(sum)) : -INFINITY;
  }
  StoreTile<kGroups>(p.out + tile.row * in.model_dim() + work.head_offset(), softmax.values, in,
                     tile.count, work.memory.keys);
}

template <typename T, int kGroups>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kTileThreads, kGroups <= 2 ? 4 : 2)
    AttentionGeneralForwardKernel(AttentionForwardParams<T> p) {
  ForEachRowTile(p.in, p.prepared, 0, 0,
                 [&](const RowTile& tile) { ForwardTile<T, kGroups>(p, tile); });
}

template <typename T>
void LaunchGeneralForward(const AttentionForwardParams<T>& params, StreamView stream) {
  const AttentionProblem<T>& in = params.in;
  WithColumns(in.head_dim, [&]<int kGroups>() {
    const LaunchShape shape =
        GeneralShape(params, in.batch_size, in.num_heads,
                     TileMemory<kGroups>::Bytes(false, in.relative != nullptr));
    Launch(AttentionGeneralForwardKernel<T, kGroups>, shape, params, stream);
  });
}

template void LaunchGeneralForward(const AttentionForwardParams<float>&, StreamView);
template void LaunchGeneralForward(const AttentionForwardParams<BFloat16>&, StreamView);

}  // namespace anyorder::kernels::cuda
