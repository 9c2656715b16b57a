// The launches of attention's kernels, one source file for each family so that they compile beside each other; attention.cu calls them in
// order. T is float or BFloat16.

#pragma once

#include "core/base/stream.h"
#include "kernels/cuda/attention_key_order.h"

namespace anyorder::kernels::cuda {

// attention_prepare.cu: each writes what its name says (AttentionPrepared, AttentionBackwardParams::delta, KeyOrder).
template <typename T>
void LaunchSegmentTerms(const AttentionProblem<T>& in,
                        float* same,
                        float* difference,
                        StreamView stream);
template <typename T>
void LaunchDistanceTerms(const AttentionProblem<T>& in, float* terms, StreamView stream);
template <typename T>
void LaunchDelta(
    const AttentionProblem<T>& in, const T* out, const T* dout, float* delta, StreamView stream);
template <typename T>
void LaunchKeyOrder(const AttentionProblem<T>& in, const KeyOrder& order, StreamView stream);

template <typename T>
void LaunchGeneralForward(const AttentionForwardParams<T>& params, StreamView stream);
// The first backward pass of the group in params.scores.
template <typename T>
void LaunchGeneralBackward(const AttentionBackwardParams<T>& params, StreamView stream);

}  // namespace anyorder::kernels::cuda
