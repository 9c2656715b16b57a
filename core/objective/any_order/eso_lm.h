// Eso-LM (Sahoo et al. 2025, "Esoteric language models"): diffusion generates a share alpha_0 of
// the tokens in random order, then the others follow from left to right. The loss is the sum of
// both phases' bounds; each lane holds both, as two documents.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeEsoLm(const ModelConfig& model,
                                                     const SamplingConfig& sampling);

}  // namespace anyorder
