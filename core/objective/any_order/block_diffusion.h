// Block diffusion (Arriola et al. 2025, BD3-LM): blocks of text from left to right, each generated
// by masked diffusion given the blocks before it. Each lane holds the text twice, clean and noised:
// a noised block sees itself and the clean blocks before it, so that one pass gives the losses of
// all blocks. Blocks of one token at rate 1 are a causal model, one block is masked_diffusion.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeBlockDiffusion(const ModelConfig& model,
                                                              const SamplingConfig& sampling);

}  // namespace anyorder
