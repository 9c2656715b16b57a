// From a head's size to template arguments of the general kernels, on the host.

#pragma once

#include <type_traits>

#include "core/base/check.h"
#include "core/base/dtype.h"
#include "kernels/cuda/attention_types.h"

namespace anyorder::kernels::cuda {

// Calls function.template operator()<kGroups>() with the columns in units of 32, rounded up to 1, 2, 4 or 8.
template <typename Function>
void WithColumns(int head_dim, Function&& function) {
  ANYORDER_CHECK(head_dim >= 1 && head_dim <= kMaxHeadDim)
      << "head_dim " << head_dim << ": the CUDA backend's attention takes 1 to " << kMaxHeadDim;
  if (head_dim <= 32) return function.template operator()<1>();
  if (head_dim <= 64) return function.template operator()<2>();
  if (head_dim <= 128) return function.template operator()<4>();
  return function.template operator()<8>();
}

// Whether gradients of keys and tables are made by tensor cores.
template <typename T>
bool TakesMatrixForm(const AttentionProblem<T>& in) {
  return std::is_same_v<T, BFloat16> && in.head_dim == 64 && in.is_aligned;
}

}  // namespace anyorder::kernels::cuda
