// From dtypes to template arguments, on the host.

#pragma once

#include "core/base/check.h"
#include "core/base/tensor.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

// Calls function.template operator()<T>() with the storage type of `dtype`.
template <typename Function>
void WithStorage(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kFloat32: return function.template operator()<float>();
    case DType::kBFloat16: return function.template operator()<BFloat16>();
    default: ANYORDER_CHECK(false) << "the CUDA backend has no " << std::string(Name(dtype));
  }
}

// Calls function.template operator()<value>().
template <typename Function>
void WithBool(bool value, Function&& function) {
  value ? function.template operator()<true>() : function.template operator()<false>();
}

// Whether rows of `columns` elements in these tensors begin at 16-byte addresses and have whole
// groups; null tensors do.
template <typename... Views>
bool AreAligned(int64_t columns, const Views&... views) {
  return columns % kGroup == 0 && ((reinterpret_cast<uintptr_t>(views.raw()) % 16 == 0) && ...);
}

}  // namespace anyorder::kernels::cuda
