// GPT (Radford et al. 2018): fine-tuning on labelled examples. Its pretraining is causal_lm.h's.

#pragma once

#include <cstdint>
#include <vector>

#include "core/objective/objective.h"

namespace anyorder {

// GPT's supervised fine-tuning (Radford et al. 2018, sections 3.2 and 3.3): labelled examples as
// token sequences between special tokens, read left to right, a head on the last state, and the
// language model of the same text with it (finetuning.md).
//
// InvalidArgument without objective.num_classes, and for settings that GPT's reading of windows
// cannot use.
ObjectiveOrStatus MakeGptClassifier(const ObjectiveSettings& settings);

// The sequences that an example becomes, each of at most `seq_len` tokens:
//   classification   [<s> text <cls>]
//   entailment       [<s> premise <sep> hypothesis <cls>]
//   similarity       [<s> a <sep> b <cls>], [<s> b <sep> a <cls>]
//   multiple_choice  [<s> context <sep> choice <cls>] for each choice
// Texts are cut at their ends. Of two that do not fit, one that takes less than half of the room
// stays whole, else each gets half, the first the odd token. REQUIRES seq_len >= 5, so that no text
// vanishes; the sample is of that task.
std::vector<std::vector<int32_t>> TaskSequences(ExampleTask task, const TextSample& sample,
                                                int64_t seq_len);

}  // namespace anyorder
