// The launches of attention's kernels, one source file for each family so that they compile beside
// each other; attention.cu calls them in order. T is float or BFloat16.

#pragma once

#include "core/base/stream.h"
#include "kernels/cuda/attention/attention_key_order.h"
#include "kernels/cuda/platform/launch_shape.h"

namespace anyorder::kernels::cuda {

// attention_prepare.cu: each writes what its name says (AttentionPrepared,
// AttentionBackwardParams::delta, KeyOrder).
template <typename T>
void LaunchSegmentTerms(const AttentionProblem<T>& in, float* same, float* difference,
                        StreamView stream);
template <typename T>
void LaunchDistanceTerms(const AttentionProblem<T>& in, float* terms, StreamView stream);
template <typename T>
void LaunchDelta(const AttentionProblem<T>& in, const T* out, const T* dout, float* delta,
                 StreamView stream);
template <typename T>
void LaunchKeyOrder(const AttentionProblem<T>& in, const KeyOrder& order, StreamView stream);

template <typename T>
void LaunchGeneralForward(const AttentionForwardParams<T>& params, StreamView stream);
// The first backward pass of the group in params.scores.
template <typename T>
void LaunchGeneralBackward(const AttentionBackwardParams<T>& params, StreamView stream);

// attention_keys.cu: dk and dv of the group, and parts of dcontent_bias. Which kernels: by dtype,
// head_dim and alignment.
template <typename T>
struct KeyGradientParams {
  AttentionProblem<T> in;
  AttentionScores<T> scores;
  const T* dout;
  T* dk;
  T* dv;
  // [2, B, K, D]: dv and dk of a key/value head that several groups of heads share, from one group
  // to the next; not used where each group has all heads that share one.
  float* key_sums;
  float* content_sums;  // [B, KeyTiles, H*D]: the gradient of content_bias, one part for each tile;
                        // or null
};
template <typename T>
void LaunchKeyGradients(const KeyGradientParams<T>& params, StreamView stream);
template <typename T>
int64_t KeyTiles(const AttentionProblem<T>& in);

// attention_distances.cu: sums [slots, num_tables, R, H*D] of gradient * q and weights [slots,
// num_tables, H, R] of the gradients, by distance; groups of lanes come in order, and each adds to
// those before.
// Enough blocks for a GPU, few enough sums to add.
constexpr int DistanceSlots(int64_t batch_size) {
  return static_cast<int>(batch_size < 1 ? 1 : batch_size > 4 ? 4 : batch_size);
}
template <typename T>
void LaunchDistanceSums(const AttentionProblem<T>& in, const AttentionScores<T>& scores,
                        const KeyOrder& order, float* sums, float* weights, StreamView stream);

// attention_parameters.cu. `parts` is memory for a first stage.
inline constexpr int kSumChunk = 64;  // rows that a first stage adds
// Rows of `parts`.
constexpr int64_t SumRowsParts(int64_t rows) { return CeilDivide(rows, kSumChunk); }
void LaunchSumRows(const float* rows, int64_t num_rows, int64_t columns, float* parts,
                   float* result, StreamView stream);
inline constexpr int kTableChunk = 16;  // the same, of tables: a row is a sum already
constexpr int64_t TableParts(int64_t rows) { return CeilDivide(rows, kTableChunk); }
// position_sums: [TableParts(num_tables * R), H*D], or null without position_bias; LaunchSumRows
// makes dposition_bias of it.
template <typename T>
void LaunchRelativeGradient(const AttentionProblem<T>& in, const float* sums, const float* weights,
                            T* drelative, float* position_sums, StreamView stream);
inline constexpr int kSegmentParts = 128;
constexpr int64_t SegmentPartElements(int64_t model_dim) { return kSegmentParts * 2 * model_dim; }
template <typename T>
void LaunchSegmentGradients(const AttentionProblem<T>& in, const float* other_segment, float* parts,
                            float* dsegment_embedding, float* dsegment_bias, StreamView stream);
// The group's part of lane_sums, [B, R', H]; then, of all lanes, the gradient.
template <typename T>
void LaunchBiasLanes(const AttentionProblem<T>& in, const AttentionScores<T>& scores,
                     const KeyOrder& order, float* lane_sums, StreamView stream);
template <typename T>
void LaunchBiasGradient(const AttentionProblem<T>& in, const float* lane_sums,
                        float* ddistance_bias, StreamView stream);

}  // namespace anyorder::kernels::cuda
