#include "kernels/host_operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/digest.h"

namespace anyorder::kernels {

void ComputeGradientClipOnHost(const ComputeGradientClipArgs& args) {
  double sum = 0;
  for (int64_t i = 0; i < args.sums.num_elements(); ++i) sum += args.sums.data<double>()[i];
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

void DigestOnHost(const DigestArgs& args) {
  const auto* const bytes = static_cast<const char*>(args.x.raw());
  const int64_t whole = args.x.num_bytes() / 8;
  DigestValue sums;
  for (int64_t i = 0; i < whole; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * i, sizeof word);
    AddWord(word, i, sums);
  }
  if (args.x.num_bytes() % 8 != 0) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * whole, static_cast<size_t>(args.x.num_bytes() % 8));
    AddWord(word, whole, sums);
  }
  const DigestValue value = FinishDigest(sums, args.x.num_bytes());
  std::memcpy(args.digest.raw(), &value, sizeof value);
}

}  // namespace anyorder::kernels
