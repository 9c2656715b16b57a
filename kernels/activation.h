// The feed-forward block's non-linearity with its dropout.
//
//   kGeluTanh  0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   (Hendrycks & Gimpel 2016; XLNet's)
//   kGeluErf   0.5 x (1 + erf(x / sqrt(2)))
//   kRelu      max(x, 0), derivative 0 at 0
//   kSilu      x / (1 + exp(-x))   (Elfwing et al. 2017)
//   kTanh      tanh(x): of summaries, not of feed-forward blocks

#pragma once

#include <array>

#include "core/base/tensor.h"
#include "kernels/dropout.h"

namespace anyorder::kernels {

enum class Activation { kGeluTanh, kGeluErf, kRelu, kSilu, kTanh };
constexpr auto SpellingsOf(Activation) { return std::array{"gelu", "gelu_erf", "relu", "silu"}; }

// y = dropout(activation(x) * factor). With a factor: GLU variants (Shazeer 2020), whose gate is x.
struct ActivationForwardArgs {
  Activation activation = Activation::kGeluTanh;
  ConstTensorView x;  // [rows, columns]  T
  Dropout dropout;
  const int32_t* row_ids = nullptr;  // [rows]
  TensorView y;                      // [rows, columns]  T
  ConstTensorView factor = {};       // [rows, columns]  T, or null: 1
};

// dx = dropout'(dy) * factor * activation'(x);  dfactor = dropout'(dy) * activation(x).
struct ActivationBackwardArgs {
  Activation activation = Activation::kGeluTanh;
  ConstTensorView x;  // forward's input
  ConstTensorView dy;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView dx;                // may be dy
  ConstTensorView factor = {};  // forward's
  TensorView dfactor = {};      // null if factor is; may be factor, not dy
};

// y = dropout(x); its own backward with dy, dx.
struct DropoutArgs {
  ConstTensorView x;                 // [rows, columns]  T
  Dropout dropout;                   // disabled: a copy
  const int32_t* row_ids = nullptr;  // [rows]
  TensorView y;                      // may be x
};

}  // namespace anyorder::kernels
