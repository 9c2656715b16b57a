// Fine-tuning on labelled examples, the same for all systems but for their traits: the sequence in
// which a system writes an example (InputLayout), and who sees whom. What is learned is the head's
// business (core/network/heads/); finetuning.md describes both.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/objective/objective.h"

namespace anyorder {

// One sequence: an example's text, or texts, between special tokens.
struct TaskSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> segments;  // of each token
  std::vector<int64_t> begin;     // where each text stands
  std::vector<int64_t> size;      // as much of it as fits
  int64_t classifier = 0;         // where CLS stands
};

// `parts` (InputLayout::Of) of at most `seq_len` tokens. Texts are cut at their ends. Of several
// that do not fit, those that take less than an equal share of the room stay whole, and the others
// share what these leave, the first ones the odd tokens. REQUIRES seq_len >= the special tokens and
// one of each text.
TaskSequence LayOut(absl::string_view parts, const VocabularyIds& ids,
                    const std::vector<const std::vector<int32_t>*>& texts, int64_t seq_len);

// Special tokens among `parts`.
int64_t NumSpecials(absl::string_view parts);

// The objective that teaches the task of settings.model.task, in the layout of its traits. A causal
// one learns the language model of the text, too, and reads the pairs of kSimilarity in both
// orders, adding the states (Radford et al. 2018, section 3.3). With kGlobals CLS, and the tokens
// of a question or choice, attend to all and are seen by all (Beltagy et al. 2020, section 6).
// InvalidArgument for settings that it cannot use.
ObjectiveOrStatus MakeFineTuning(const ObjectiveSettings& settings);

// Adds what keeps the keys of [objective] about the head from fitting one another.
void CheckTaskHead(const TaskConfig& task, FaultList& faults);

}  // namespace anyorder
