// The optimizer's arithmetic on flat ranges of parameters.

#pragma once

#include <cstdint>

#include "core/base/tensor.h"

namespace anyorder::kernels {

// Elements per block of SumOfSquares; sharding boundaries of the flat parameter space are multiples of it.
inline constexpr int64_t kNormBlockElements = 16384;

// Decoupled weight decay Adam (Loshchilov & Hutter 2019) on a flat range:
//   g = grad_scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   master -= learning_rate * ( c m / (sqrt(v) + epsilon) + weight_decay * master )
// c = sqrt(1 - b2^t) / (1 - b1^t) with bias correction (t = step + 1), else 1 (the published XLNet form).
struct AdamWArgs {
  ConstTensorView grad;  // [n] G
  TensorView master;     // [n] G
  TensorView m;          // [n] G
  TensorView v;          // [n] G
  TensorView weights;    // [n] T or null: receives master rounded to T
  double grad_scale = 1;
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0;
  bool bias_correction = false;
  int64_t step = 0;  // 0-based
};

}  // namespace anyorder::kernels
