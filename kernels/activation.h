// The feed-forward block's non-linearity with its dropout.
//
//   kGeluTanh  0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks & Gimpel 2016; XLNet's)
//   kGeluErf   0.5 x (1 + erf(x / sqrt(2)))
//   kRelu      max(x, 0), derivative 0 at 0
//   kTanh      tanh(x): of summaries, not of feed-forward blocks

#pragma once

#include "core/base/tensor.h"
#include "kernels/dropout.h"

namespace anyorder::kernels {

enum class Activation { kGeluTanh, kGeluErf, kRelu, kTanh };

// y = dropout(activation(x)).
struct ActivationForwardArgs {
  Activation activation = Activation::kGeluTanh;
  ConstTensorView x;  // [rows, columns]  T
  Dropout dropout;
  const int32_t* row_ids = nullptr;  // [rows]
  TensorView y;                      // [rows, columns]  T
};

// dx = dropout'(dy) * activation'(x).
struct ActivationBackwardArgs {
  Activation activation = Activation::kGeluTanh;
  ConstTensorView x;  // forward's input
  ConstTensorView dy;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView dx;  // may be dy
};

// y = dropout(x); its own backward with dy, dx.
struct DropoutArgs {
  ConstTensorView x;                 // [rows, columns]  T
  Dropout dropout;                   // disabled: a copy
  const int32_t* row_ids = nullptr;  // [rows]
  TensorView y;                      // may be x
};

}  // namespace anyorder::kernels
