// How the reference reads and writes tensors: storage of T, arithmetic in double.

#pragma once

#include <type_traits>

#include "core/base/check.h"
#include "core/base/dtype.h"

namespace anyorder::kernels::reference {

// The element type of parameter gradients and statistics beside activations of type T.
template <typename T>
using GradientOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
double Load(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    return static_cast<double>(x);
  }
}

template <typename T>
T Round(double x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// Calls operation.operator()<T>() with the storage type that `dtype` names.
template <typename Operation>
void WithStorage(DType dtype, Operation operation) {
  switch (dtype) {
    case DType::kFloat64: return operation.template operator()<double>();
    case DType::kFloat32: return operation.template operator()<float>();
    case DType::kBFloat16: return operation.template operator()<BFloat16>();
    default: ANYORDER_CHECK(false) << "no arithmetic on " << Name(dtype);
  }
}

}  // namespace anyorder::kernels::reference
