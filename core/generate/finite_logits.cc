#include "core/generate/finite_logits.h"

#include <cmath>
#include <limits>

#include "core/base/status.h"

namespace anyorder {
namespace {

// Without a branch a logit, so that compilers vectorise it.
template <typename T>
bool AreFinite(ConstTensorView values) {
  const T* const value = values.data<T>();
  const int64_t count = values.num_elements();
  uint32_t is_bad = 0;
  for (int64_t i = 0; i < count; ++i)
    is_bad |= std::abs(value[i]) <= std::numeric_limits<T>::max() ? 0u : 1u;
  return is_bad == 0;
}

}  // namespace

absl::Status CheckFinite(ConstTensorView logits) {
  const bool are_finite =
      logits.dtype() == DType::kFloat64 ? AreFinite<double>(logits) : AreFinite<float>(logits);
  if (are_finite) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the model's logits are not finite, as after a training that diverged; choose an earlier "
      "checkpoint (--step)");
}

}  // namespace anyorder
