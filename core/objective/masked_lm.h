// BERT's masked language model (Devlin et al. 2019, section 3.1): one content stream, the input at
// targets corrupted, targets read out where they stand. Every token sees every other, and with
// [objective] next_sentence the state of CLS says whether B follows A.
//
// With recurrence memory, relative positions and two reading directions it is denoising
// auto-encoding on XLNet's backbone: the row "DAE + Transformer-XL" of its ablation (Yang et al.
// 2019, table 6). There the first half, whose states the next step remembers, does not see the
// second: that text is the next step's first half, and memory would tell its targets. The second
// half sees everything, as in XLNet.

#pragma once

#include <cstdint>

#include "core/base/philox.h"
#include "core/objective/objective.h"

namespace anyorder {

ObjectiveOrStatus MakeMaskedLm(const ObjectiveSettings& settings);

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

// What the network reads in place of a target (Devlin et al. 2019): <mask>, a token drawn uniformly
// from the whole vocabulary or the token itself, by mask_token_prob and random_token_prob. As in
// BERT, special pieces may be drawn, and so may the token itself: what is kept is therefore
// 1 / ids.size of the random ones more.
int32_t Corrupted(int32_t truth, const SamplingConfig& sampling, const VocabularyIds& ids,
                  RandomStream& random);

}  // namespace anyorder
