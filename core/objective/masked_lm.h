// BERT's masked language model (Devlin et al. 2019, section 3.1), in the two forms of dae and
// bert: one content stream, the input at targets corrupted, targets read out where they stand.

#pragma once

#include <cstdint>
#include <memory>

#include "core/base/philox.h"
#include "core/objective/objective.h"

namespace anyorder {

struct MaskedLmForm {
  // Whether the first half's states are the next step's memory. Then it does not see the second
  // half, which is the next step's first: memory would tell its targets. Otherwise everybody sees
  // everybody.
  bool remembers = true;
  // [CLS] A [SEP] B [SEP] as BERT has it, in place of XLNet's A [SEP] B [SEP] [CLS].
  bool cls_first = false;
};

std::unique_ptr<Objective> MakeMaskedLm(const MaskedLmForm& form,
                                        const ObjectiveSettings& settings);

// What masked language models write alike: where [CLS] A [SEP] B [SEP] puts a sample's tokens, what
// stands in place of its targets, and their readout.

// Slot of the sample's token `place` where CLS, the last token of the sample's text, comes first.
// Padding stays at the end.
inline int64_t ClsFirstSlot(const TextSample& sample, int64_t place) {
  const int64_t length = static_cast<int64_t>(sample.tokens.size()) - sample.padding;
  return place < length ? (place + 1) % length : place;
}

// Targets of lane `b` in increasing place, labelled with their true tokens. Whole words and short
// samples leave entries over: they read slots that are no target, each another one, because
// gradients are scattered back row by row. cls_first: by ClsFirstSlot.
void FillMaskedReadout(const TextSample& sample, bool cls_first, int64_t b, Batch& batch);

// What the network reads in place of a target (Devlin et al. 2019): <mask>, a random token or the
// token itself, by mask_token_prob and random_token_prob.
int32_t Corrupted(int32_t truth, const SamplingConfig& sampling, const VocabularyIds& ids,
                  RandomStream& random);

}  // namespace anyorder
