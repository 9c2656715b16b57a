// Logits that no token can be chosen by: those of a training that diverged, or of a damaged
// checkpoint.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "core/base/tensor.h"

namespace anyorder {

// FailedPrecondition unless all of `logits` [V], fp32 or fp64, are finite. The message says where
// they are from: text `text`, counted from 0, of those that are computed together, and the position
// of the slot that they were read at.
absl::Status CheckFinite(ConstTensorView logits, int64_t text, int64_t position);

}  // namespace anyorder
