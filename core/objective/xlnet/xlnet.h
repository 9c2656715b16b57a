// XLNet's objective. The control of its ablation is masked_lm.h's.

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

}  // namespace anyorder
