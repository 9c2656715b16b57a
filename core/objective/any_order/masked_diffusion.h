// Masked diffusion language models: MDLM (Sahoo et al. 2024) and LLaDA (Nie et al. 2025). A random
// share p of the tokens is replaced by
// <mask>, everybody sees everybody, and each masked token's loss weighs 1/p: an upper bound of the
// text's NLL (mask_noise.h).

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeMaskedDiffusion(const ModelConfig& model,
                                                               const SamplingConfig& sampling);

}  // namespace anyorder
