// Checks of the arguments that every backend makes before it touches memory: shapes that agree,
// dtypes that the contract allows, pointers that are there. A violation is our own mistake and
// aborts.

#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace anyorder::kernels {

// The dtype of parameter gradients and statistics where activations are of `dtype`.
constexpr DType GradientDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// A tensor of any rank seen as a matrix: the leading dimensions are rows.
inline int64_t NumColumns(const ConstTensorView& x) {
  return x.shape().rank() == 0 ? 1 : x.dim(x.shape().rank() - 1);
}
inline int64_t NumRows(const ConstTensorView& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.shape().rank(); ++i) rows *= x.dim(i);
  return rows;
}

// Null where the tensor is.
template <typename T, typename View>
auto DataOrNull(const View& x) {
  return x.is_null() ? nullptr : x.template data<T>();
}

struct GemmSizes {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

// REQUIRES checked arguments.
GemmSizes SizesOf(const GemmArgs& args);
GemmSizes CheckArguments(const GemmArgs& args);
// Product `index` of the batch alone.
GemmArgs ProductOf(const GemmArgs& args, int64_t index);
// What a product has to sum of its operands, as an operation of its own; y is null where it is
// nothing. Of a batch: the first product's.
ColumnSumArgs SumOf(const GemmArgs& args);
void CheckArguments(const AttentionPlan& plan, int64_t bytes);
void CheckArguments(const AttentionForwardArgs& args);
// `workspace_bytes` is what the backend asked for.
void CheckArguments(const AttentionBackwardArgs& args, int64_t workspace_bytes);
// Checks the arguments of any operation, with the sizes that `backend` asks for.
void CheckArguments(const Operation& operation, const Backend& backend);

}  // namespace anyorder::kernels
