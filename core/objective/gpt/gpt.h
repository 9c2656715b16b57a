// GPT's pretraining (Radford et al. 2018, section 3.1): windows of text, each token predicted from
// those before it in its window. Transformer-XL's causal_lm without memory; what else is GPT is the
// backbone's (configs/gpt-tiny.toml).

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeGpt(const ModelConfig& model,
                                                   const SamplingConfig& sampling);

}  // namespace anyorder
