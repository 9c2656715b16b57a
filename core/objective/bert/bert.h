// BERT as published (Devlin et al. 2019): every token sees every other, nothing is remembered, and
// a target is predicted from the corrupted input where it stands. With [objective] next_sentence
// the state of CLS, the first token, says whether B follows A.

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

ObjectiveOrStatus MakeBert(const ObjectiveSettings& settings);

}  // namespace anyorder
