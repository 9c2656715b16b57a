// Softmax cross-entropy of logits that a product left in fp32 (kernels/losses.h).
//
// Two passes over a chunk of logits. The first gives each row its loss, and the two numbers that
// turn any of its logits into a probability. The second turns logits into their gradients, in the
// products' dtype and over the logits, and sums columns for the bias while it has them: logits are
// written once, read twice and their gradients written once. The bias is added here, so that the
// product needs no epilogue.
//
// Logits are fp32 also where the products are bf16: rounding one of 20 to bf16 moves its
// probability by up to 6 %. Gradients of bf16 must then be dense rows, for the products, of half a
// row of logits each, so they run ahead of it: a launch that writes rows [begin, end) of gradients
// overwrites logits that an earlier launch has read, and none that its own blocks, which come in
// any order, still want (GradientRowsEnd). No second array of all rows is needed, and nothing waits
// inside of a launch.

#pragma once

#include "kernels/cuda/operations/partial_sums.cuh"
#include "kernels/cuda/operations/scratch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kSoftmaxThreads = 256;
inline constexpr int kLogitThreads = 128;

// Where a launch must end that begins with row `begin`, a multiple of kLogitRows. In rows of T,
// half as long as those of logits, what it writes ends at `end` and what nobody has read yet begins
// at lead + 2 * begin.
template <typename T>
constexpr int64_t GradientRowsEnd(int64_t begin, int64_t rows, int64_t lead) {
  if (sizeof(T) == sizeof(float)) return rows;  // every thread overwrites what it has read itself
  const int64_t end = lead + 2 * begin;
  return end < rows ? end : rows;
}

template <typename T>
struct SoftmaxParams {
  const float* logits;  // [rows, vocab], without bias
  const T* bias;        // [vocab] or null
  const int32_t* labels;
  const float* row_weights;
  float* loss;                    // [rows]
  SoftmaxStatistics* statistics;  // [rows], of rows with a weight
  int vocab;
};

template <typename T>
struct LogitGradientParams {
  const float* logits;  // [rows, vocab]
  const T* bias;
  const int32_t* labels;
  const float* row_weights;
  const SoftmaxStatistics* statistics;
  T* dlogits;  // [rows, vocab]; begins LeadRows before the logits, or is the logits where T is fp32
  float* partials;  // [ceil(rows / kLogitRows), vocab], or null without dbias
  // Of this launch: GradientRowsEnd.
  int64_t begin;
  int64_t end;
  int vocab;
};

struct BiasGradientParams {
  const float* partials;  // [parts, vocab]
  int64_t parts;
  float* dbias;  // added to
  int vocab;
};

// Eight logits with their bias; those beyond `count` are -inf.
template <typename T, bool kAligned>
ANYORDER_DEVICE Vector8 LoadLogits(const float* logits, const T* bias, int column, int count) {
  Vector8 x = LoadGroup<kAligned>(logits + column, count);
  if (bias != nullptr) AddTo(LoadGroup<kAligned>(bias + column, count), x);
  ANYORDER_UNROLL
  for (int i = 0; i < kGroup; ++i) x.v[i] = i < count ? x.v[i] : -INFINITY;
  return x;
}

// The sum of exp(x - largest) over what was added so far, rescaled as a larger x turns up (Milakov
// & Gimelshein 2018).
struct RunningSum {
  float largest = -INFINITY;
  float sum = 0;

  ANYORDER_DEVICE void Raise(float to) {
    if (to > largest) {
      sum *= expf(largest - to);
      largest = to;
    }
  }
  ANYORDER_DEVICE void Add(const Vector8& x) {
    float group = x.v[0];
    ANYORDER_UNROLL
    for (int i = 1; i < kGroup; ++i) group = fmaxf(group, x.v[i]);
    Raise(group);
    // A -inf adds nothing, also as long as there is nothing larger. NaN passes by every maximum and
    // so must reach the sum.
    ANYORDER_UNROLL
    for (int i = 0; i < kGroup; ++i) sum += x.v[i] == -INFINITY ? 0.0f : expf(x.v[i] - largest);
  }
  ANYORDER_DEVICE void Join(float other_largest, float other_sum) {
    Raise(other_largest);
    // Without a largest the other sum is 0 or NaN.
    sum += other_largest == -INFINITY ? other_sum : other_sum * expf(other_largest - largest);
  }
};

template <typename T>
ANYORDER_DEVICE void FinishRow(const SoftmaxParams<T>& p, int64_t row, const RunningSum& all) {
  const int32_t label = p.labels[row];
  if (label < 0 || label >= p.vocab) Trap("a label is outside the vocabulary");
  float logit = p.logits[row * p.vocab + label];
  if (p.bias != nullptr) logit += ToFloat(p.bias[label]);
  p.loss[row] = (all.largest - logit) + logf(all.sum);
  p.statistics[row] = {all.largest, 1.0f / all.sum};
}

// A block has a row. Lanes are joined by a butterfly whose result is lane 0's, warps in order.
// Shared memory: two floats a warp.
template <typename T, bool kAligned>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kSoftmaxThreads, 4) SoftmaxKernel(SoftmaxParams<T> p) {
  const int64_t row = BlockX();
  if (p.row_weights[row] == 0.0f) {
    if (Thread() == 0) p.loss[row] = 0;
    return;
  }
  const float* const logits = p.logits + row * p.vocab;
  RunningSum mine;
  for (int column = Thread() * kGroup; column < p.vocab; column += kSoftmaxThreads * kGroup) {
    const int count = p.vocab - column < kGroup ? p.vocab - column : kGroup;
    mine.Add(LoadLogits<T, kAligned>(logits, p.bias, column, count));
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    mine.Join(ShuffleXor(mine.largest, distance), ShuffleXor(mine.sum, distance));
  auto* const warps = reinterpret_cast<RunningSum*>(SharedMemory());
  if (Lane() == 0) warps[Thread() / kWarp] = mine;
  SyncBlock();
  if (Thread() != 0) return;
  for (int warp = 1; warp < kSoftmaxThreads / kWarp; ++warp)
    mine.Join(warps[warp].largest, warps[warp].sum);
  FinishRow(p, row, mine);
}

// Block (r, c): rows [begin + r * kLogitRows, ...) of a block's worth of columns, 8 a thread.
template <typename T, bool kAligned>
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kLogitThreads, 4)
    LogitGradientKernel(LogitGradientParams<T> p) {
  const int column = (BlockY() * kLogitThreads + Thread()) * kGroup;
  if (column >= p.vocab) return;
  const int count = p.vocab - column < kGroup ? p.vocab - column : kGroup;
  const int64_t begin = p.begin + int64_t{BlockX()} * kLogitRows;
  const int64_t end = begin + kLogitRows < p.end ? begin + kLogitRows : p.end;
  Vector8 sums = {};
  for (int64_t row = begin; row < end; ++row) {
    const float weight = p.row_weights[row];
    Vector8 d = {};
    if (weight != 0.0f) {
      const SoftmaxStatistics statistics = p.statistics[row];
      const int label = p.labels[row];
      const Vector8 x = LoadLogits<T, kAligned>(p.logits + row * p.vocab, p.bias, column, count);
      ANYORDER_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        const float probability = expf(x.v[i] - statistics.largest) * statistics.inverse;
        d.v[i] = weight * (probability - (column + i == label ? 1.0f : 0.0f));
      }
    }
    StoreGroup<kAligned>(p.dlogits + row * p.vocab + column, d, count);
    AddTo(d, sums);
  }
  if (p.partials != nullptr)
    StoreGroup<kAligned>(p.partials + begin / kLogitRows * p.vocab + column, sums, count);
}

ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kShareThreads, 2)
    BiasGradientKernel(BiasGradientParams p) {
  const ShareOfSums share = SumParts(p.partials, p.parts, p.vocab);
  if (share.is_whole) p.dbias[share.column] += share.sum;
}

}  // namespace anyorder::kernels::cuda
