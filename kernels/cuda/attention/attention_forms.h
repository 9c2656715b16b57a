// From a head's size to template arguments of the general kernels, on the host.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/dtype.h"
#include "kernels/cuda/attention/attention_types.h"

namespace anyorder::kernels::cuda {

// Calls function.template operator()<kGroups>() with the columns in units of 32, rounded up to 1,
// 2, 4 or 8.
template <typename Function>
void WithColumns(int head_dim, Function&& function) {
  ANYORDER_CHECK(head_dim >= 1 && head_dim <= kMaxHeadDim)
      << "head_dim " << head_dim << ": the CUDA backend's attention takes 1 to " << kMaxHeadDim;
  if (head_dim <= 32) return function.template operator()<1>();
  if (head_dim <= 64) return function.template operator()<2>();
  if (head_dim <= 128) return function.template operator()<4>();
  return function.template operator()<8>();
}

// Blocks that a general kernel has for each of `lanes_and_heads`: one a tile, unless the ring
// kernels may have the rows, which the host does not know; then so few that a launch for nothing is
// soon over, and enough to give each of 132 multiprocessors 15 where all rows are the general
// kernels'. XLNet-Large at B = 64 (512 content and 85 query rows, 16 heads): 2 a lane and head,
// 2048 in all, where one a tile were 19456.
inline int64_t RowTileBlocks(int64_t tiles, int64_t lanes_and_heads, bool may_be_ring) {
  constexpr int64_t kMostBlocks = 2048;
  if (!may_be_ring || tiles * lanes_and_heads <= kMostBlocks) return tiles;
  return std::max<int64_t>(1, kMostBlocks / lanes_and_heads);
}

// Whether gradients of keys and tables are made by tensor cores.
template <typename T>
bool TakesMatrixForm(const AttentionProblem<T>& in) {
  return std::is_same_v<T, BFloat16> && in.head_dim == 64 && in.is_aligned;
}

}  // namespace anyorder::kernels::cuda
