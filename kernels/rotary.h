// Rotary positions (Su et al. 2021, section 3.4): every head's pairs (x[f], x[f + D/2]) are turned
// by an angle of their row.
//
//   y[f]       = x[f] cos[f] - x[f + D/2] sin[f]
//   y[f + D/2] = x[f + D/2] cos[f] + x[f] sin[f]          0 <= f < D/2
//
// With angles pos * base^(-2f/D) the dot product of a turned query and a turned key depends on
// pos_i - pos_j alone. The caller gives the angles, because layers share them; positions of any
// sign and order do. Pairs lie half a head apart, not side by side. `inverse` turns back: the
// transposed map, which gives dx from dy.

#pragma once

#include "core/base/tensor.h"

namespace anyorder::kernels {

struct RotaryArgs {
  ConstTensorView x;       // [rows, H*D]  T, D even
  ConstTensorView angles;  // [rows, D]    G: cosines of a row's D/2 angles, then their sines
  bool inverse = false;
  TensorView y;  // [rows, H*D]  T; may be x
};

}  // namespace anyorder::kernels
