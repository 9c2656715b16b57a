// Transformer-XL's causal language modelling (Dai et al. 2019, section 3): one content stream,
// every slot predicts the token after it, and each segment attends to the states of the segments
// before it. "gpt" is the same without memory: GPT's pretraining (Radford et al. 2018,
// section 3.1); what else is GPT is the backbone's (configs/gpt-tiny.toml).
//
// "gpt_sft" is gpt on conversations, examples of generation (Ouyang et al. 2022, section 3.5):
// tokens of answers are predicted from all before them, what others say is only read.

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

ObjectiveOrStatus MakeCausalLm(const ObjectiveSettings& settings);

// A conversation that does not fit loses its first tokens while what stands before its last answer
// has more than half of the slots; then that answer loses its last ones.
ObjectiveOrStatus MakeGptSft(const ObjectiveSettings& settings);

}  // namespace anyorder
