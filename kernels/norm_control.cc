// ComputeGradientClip where memory is the host's: what every such backend shares.

#include <algorithm>
#include <cmath>

#include "kernels/arguments.h"
#include "kernels/backend.h"

namespace anyorder::kernels {

void Backend::ComputeGradientClip(const ComputeGradientClipArgs& args, StreamView) {
  CheckArguments(args);
  double sum = 0;
  for (int64_t i = 0; i < args.sums.num_elements(); ++i)
    sum += args.sums.data<double>()[i];
  NormControl& control = *args.control;
  control.norm = std::abs(args.grad_scale) * std::sqrt(sum);
  // Written so that a norm that is not a number skips.
  const bool is_good = std::isfinite(control.norm) && std::isfinite(args.grad_scale) &&
                       control.norm <= args.skip_above_norm;
  control.skips = is_good ? 0 : 1;
  if (!is_good) return;
  control.clip_factor = args.max_grad_norm > 0
                            ? args.max_grad_norm / std::max(control.norm, args.max_grad_norm)
                            : 1.0;
  control.grad_scale = args.grad_scale * control.clip_factor;
  ++control.updates;
  const auto t = static_cast<double>(control.updates);
  control.correction = args.bias_correction
                           ? std::sqrt(1 - std::pow(args.beta2, t)) / (1 - std::pow(args.beta1, t))
                           : 1.0;
}

}  // namespace anyorder::kernels
