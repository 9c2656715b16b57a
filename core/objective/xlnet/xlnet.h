// XLNet's objective, and the control of its ablation.

#pragma once

#include "core/objective/objective.h"

namespace anyorder {

// XLNet's permutation language modelling with two streams and partial prediction (Yang et al. 2019,
// sections 2.2-2.3; released data_utils.py `_local_perm`).
//
// The sequence is two halves, [reuse | A SEP B SEP CLS], each with its own factorisation order. In
// a half, ordinary tokens that are no target are context and come first, all at once; targets and
// SEP / CLS follow in the order drawn. The second half comes after the whole first half. Content
// rows see what is not after them; query rows see what is strictly before them, and only query rows
// are read out.
ObjectiveOrStatus MakePermutationLm(const ObjectiveSettings& settings);

// Denoising auto-encoding on XLNet's backbone: the row "DAE + Transformer-XL" of its ablation (Yang
// et al. 2019, table 6). BERT's masked language model (Devlin et al. 2019, section 3.1) with
// recurrence memory, relative positions, segments and two reading directions. One content stream;
// the input at targets is corrupted, and they are read out where they stand.
//
// BERT lets every token see every other. Here the first half, whose states the next step remembers,
// does not see the second: that text is the next step's first half, and memory would tell its
// targets. The second half sees everything, as in XLNet.
ObjectiveOrStatus MakeDae(const ObjectiveSettings& settings);

// XLNet's fine-tuning (Yang et al. 2019, section 3.1; released classifier_utils.py and
// run_squad.py): A SEP B SEP CLS, read by the content stream alone, which sees both ways; the
// passage comes before the question. There are as many relative segments as a task needs.
ObjectiveOrStatus MakeXlnetFineTuning(const ObjectiveSettings& settings);

}  // namespace anyorder
