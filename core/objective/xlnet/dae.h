// Denoising auto-encoding on XLNet's backbone: the row "DAE + Transformer-XL" of its ablation (Yang
// et al. 2019, table 6). BERT's masked language model (Devlin et al. 2019, section 3.1) with
// recurrence memory, relative positions, segments and two reading directions. One content stream;
// the input at targets is corrupted, and they are read out where they stand.
//
// BERT lets every token see every other. Here the first half, whose states the next step remembers,
// does not see the second: that text is the next step's first half, and memory would tell its
// targets. The second half sees everything, as in XLNet.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeDae(const ModelConfig& model,
                                                   const SamplingConfig& sampling);

}  // namespace anyorder
