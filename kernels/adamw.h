// The optimizer's arithmetic on flat ranges of parameters.

#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/tensor.h"

namespace anyorder::kernels {

// Elements per block of SumOfSquares; sharding boundaries of the flat parameter space are multiples
// of it.
inline constexpr int64_t kNormBlockElements = 16384;

// What the norm of a step's gradient decides. It lives in the device's memory: ComputeGradientClip
// writes it and AdamW reads it, so that a step needs no word from the host in between; CopyToHost
// tells the host later what happened. Whoever loads the moments writes it once: a NormControl{}
// with the number of updates that made them.
struct NormControl {
  double norm = 0;         // of args.grad_scale * gradient, before clipping, finite or not
  double clip_factor = 1;  // what clipping multiplies with
  double grad_scale = 0;   // what AdamW multiplies the gradient with: args.grad_scale * clip_factor
  double correction = 1;   // AdamW's c
  double epsilon_scale = 1;  // AdamW's e
  int64_t updates = 0;       // steps that were not skipped: AdamW's t
  int32_t skips = 0;         // 1: this step changes nothing, moments and `updates` neither
};

// sum = sums[0] + sums[1] + ... in an order fixed by their number;  norm = |grad_scale| sqrt(sum)
// skips unless norm and grad_scale are finite and norm <= skip_above_norm; else updates += 1 and
// clip_factor = max_grad_norm / max(norm, max_grad_norm) with clipping, else 1
struct ComputeGradientClipArgs {
  ConstTensorView sums;  // [n] fp64, SumOfSquares' of the whole gradient, all ranks' in block order
  NormControl* control = nullptr;  // device memory
  double grad_scale = 1;
  double max_grad_norm = 0;  // 0: no clipping
  double skip_above_norm = std::numeric_limits<double>::infinity();
  // AdamW's, for c and e with t = updates.
  double beta1 = 0.9;
  double beta2 = 0.999;
  bool bias_correction = false;
  bool corrects_epsilon = false;
};

// Decoupled weight decay Adam (Loshchilov & Hutter 2019) on a flat range:
//   g = grad_scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   master -= learning_rate * ( c m / (sqrt(v) + e epsilon) + weight_decay * master )
// Without bias correction (the published XLNet form) c = e = 1. With it and t = step + 1
// c = sqrt(1 - b2^t) / (1 - b1^t), and there are two forms of the denominator:
//   corrects_epsilon = false: e = 1, epsilon is added to the root of v as it is: TensorFlow's Adam,
//     and "epsilon hat" at the end of section 2 of Kingma & Ba 2015
//   corrects_epsilon = true: e = sqrt(1 - b2^t), so that epsilon is added to the root of the
//     corrected v: their algorithm 1, and torch.optim.AdamW
// They differ by e: at t = 1 and b2 = 0.999 the first adds 31.6 times what the second does.
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
  bool corrects_epsilon = false;
  int64_t step = 0;  // 0-based
  // Device memory. Given: grad_scale, c and e are its, whatever grad_scale, bias_correction,
  // corrects_epsilon and step say, and where it skips nothing is written. Null: as the host says.
  const NormControl* control = nullptr;
};

// AdamW's c at its update number t, the first being 1, for either arguments.
template <typename Args>
double BiasCorrection(const Args& args, int64_t t) {
  if (!args.bias_correction) return 1;
  const auto times = static_cast<double>(t);
  return std::sqrt(1 - std::pow(args.beta2, times)) / (1 - std::pow(args.beta1, times));
}

// AdamW's e, likewise.
template <typename Args>
double EpsilonScale(const Args& args, int64_t t) {
  if (!args.bias_correction || !args.corrects_epsilon) return 1;
  return std::sqrt(1 - std::pow(args.beta2, static_cast<double>(t)));
}

}  // namespace anyorder::kernels
