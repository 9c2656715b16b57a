// What an operation costs by its shapes: the same for every backend, whatever its kernels do.

#pragma once

#include "kernels/operation.h"

namespace anyorder::kernels {

struct OperationCost {
  // Of matrix products, two a multiply-add: those of Gemm, attention (of every row with every key
  // of its window, masks are not counted off) and the cross-entropy with its linear layer.
  double flops = 0;
  // Each tensor that is read or written, once; gathered rows alone of a table.
  double bytes = 0;
  // Of them those of operations on flat ranges, as an optimizer's and a reduction's.
  double flat_bytes = 0;
  // Of flops those of attention's scores that backward computes once more.
  double repeated_flops = 0;

  OperationCost& operator+=(const OperationCost& other) {
    flops += other.flops;
    bytes += other.bytes;
    flat_bytes += other.flat_bytes;
    repeated_flops += other.repeated_flops;
    return *this;
  }
  OperationCost operator-(const OperationCost& other) const {
    return {flops - other.flops, bytes - other.bytes, flat_bytes - other.flat_bytes,
            repeated_flops - other.repeated_flops};
  }
  bool operator==(const OperationCost&) const = default;
};

OperationCost CostOf(const Operation& operation);

}  // namespace anyorder::kernels
