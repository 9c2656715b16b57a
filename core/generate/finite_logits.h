// Checks that logits are finite. They are not if training diverged or the checkpoint is damaged.

#pragma once

#include "absl/status/status.h"

#include "core/base/tensor.h"

namespace anyorder {

// FailedPrecondition unless all of `logits` [V], fp32 or fp64, are finite.
absl::Status CheckFinite(ConstTensorView logits);

}  // namespace anyorder
