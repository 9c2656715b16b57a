// BERT as published (Devlin et al. 2019): every token sees every other, nothing is remembered, and
// a target is predicted from the corrupted input where it stands. With [objective] next_sentence
// the state of CLS, the first token, says whether B follows A.

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

ObjectiveOrStatus MakeBert(const ObjectiveSettings& settings);

// BERT's fine-tuning (section 3.2): [CLS] A [SEP] B [SEP], the head on CLS or on the passage's
// tokens. It serves every network that sees both ways and has no layout of its own: UniLM, masked
// diffusion.
ObjectiveOrStatus MakeBertFineTuning(const ObjectiveSettings& settings);

}  // namespace anyorder
