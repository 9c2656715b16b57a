// Transformer-XL's causal language modelling (Dai et al. 2019, section 3): one content stream,
// every slot predicts the token after it, and each segment attends to the states of the segments
// before it. "gpt" is the same without memory: GPT's pretraining (Radford et al. 2018,
// section 3.1); what else is GPT is the backbone's (configs/gpt-tiny.toml).

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

ObjectiveOrStatus MakeCausalLm(const ObjectiveSettings& settings);

}  // namespace anyorder
