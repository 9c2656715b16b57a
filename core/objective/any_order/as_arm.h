// AS-ARM, the any-subset autoregressive model behind ASSD (Guo and Ermon 2025): a prompt of random
// tokens is given, its tokens seeing one another; all others are predicted from left to right, each
// from the prompt and those before it. XLNet's two streams.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeAsArm(const ModelConfig& model,
                                                     const SamplingConfig& sampling);

}  // namespace anyorder
