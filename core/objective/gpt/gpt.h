// GPT (Radford et al. 2018): fine-tuning on labelled examples. Its pretraining is causal_lm.h's.

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

// Sections 3.2 and 3.3 of the paper: labelled examples as token sequences between special tokens,
// read left to right, a head on the last state, and the language model of the same text with it. A
// similarity pair is read in both orders (finetuning.h).
ObjectiveOrStatus MakeGptFineTuning(const ObjectiveSettings& settings);

}  // namespace anyorder
