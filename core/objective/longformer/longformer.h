// Longformer's pretraining (Beltagy et al. 2020, sections 3 and 5): BERT's masked tokens in long
// windows of contiguous text, CLS slots before them that are global, and, if asked for, every n-th
// slot of the text. What a token sees otherwise is the model's attention_windows; here everybody
// may see everybody. Its character language model is causal_lm with windows
// (configs/longformer-char-tiny.toml).

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

ObjectiveOrStatus MakeLongformer(const ObjectiveSettings& settings);

}  // namespace anyorder
