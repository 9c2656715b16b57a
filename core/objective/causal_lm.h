// Transformer-XL's causal language modelling (Dai et al. 2019, section 3): one content stream,
// every slot predicts the token after it, and each segment attends to the states of the segments
// before it.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

ObjectiveOrStatus MakeCausalLm(const ModelConfig& model, const SamplingConfig& sampling);

// The same function under another system's name (gpt.h).
ObjectiveOrStatus MakeCausalLmNamed(const std::string& name, const ModelConfig& model,
                                    const SamplingConfig& sampling);

}  // namespace anyorder
