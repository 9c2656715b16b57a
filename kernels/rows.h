// Moving rows between places.

#pragma once

#include <cstdint>

#include "core/base/tensor.h"

namespace anyorder::kernels {

// Rows of `columns` elements between strided places; strides count elements. Moves recurrence
// memory.
struct CopyRowsArgs {
  ConstTensorView source;
  int64_t source_begin = 0;  // element index of the first row
  int64_t source_stride = 0;
  TensorView destination;  // same dtype
  int64_t destination_begin = 0;
  int64_t destination_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// y[r] = x[rows[r]] (gather), or with `scatter_add`: y[rows[r]] += x[r]. Rows must not repeat in a
// scatter.
struct GatherRowsArgs {
  ConstTensorView x;              // [*, columns]  T
  const int32_t* rows = nullptr;  // [num_rows]
  int64_t num_rows = 0;
  bool scatter_add = false;
  TensorView y;  // [*, columns]  T
};

}  // namespace anyorder::kernels
