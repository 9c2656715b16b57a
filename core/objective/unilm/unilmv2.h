// Pseudo-masked language model (UniLMv2, Bao et al. 2020): two losses on the same masked tokens
// from one forward pass.
//
// Autoencoding (AE): each masked token from the context alone, read where a [M] stands for it.
// Partially autoregressive (PAR): block after block in a random order, each from the context and
// the true tokens of the blocks before it, read where a [P] stands for it. unilmv2.md has the
// slots, the mask and what the paper leaves open.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

// Slots a lane, all of them content, m = the most tokens that can be masked: seq_len of the text, m
// [M], m [P]. [M] and [P] share position and segment with the token they stand for and come in the
// order of the factorisation. A [P] holds <mask>, as in the authors' fine-tuning code; what is left
// over is padding (doc -1).
// InvalidArgument: memory, two directions, blocks that cannot be drawn.
absl::StatusOr<std::unique_ptr<Objective>> MakeUnilmV2(const ModelConfig& model,
                                                       const SamplingConfig& sampling);

}  // namespace anyorder
