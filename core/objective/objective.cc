#include "core/objective/objective.h"

#include "core/base/status.h"

namespace anyorder {

FormOrStatus Objective::Generation(const GenerationTokens&) const {
  return FailedPrecondition(
      "a network trained with ", name(),
      " has not learned an order to write text in; use a network trained with "
      "causal_lm, gpt or permutation_lm");
}

absl::StatusOr<CanvasForm> Objective::Canvas(const GenerationTokens&) const {
  return FailedPrecondition(
      "a network trained with ", name(),
      " has not learned to predict a text in any order; use one trained with masked_diffusion, "
      "block_diffusion, eso_lm, a3, as_arm, sigma_gpt or permutation_lm");
}

}  // namespace anyorder
