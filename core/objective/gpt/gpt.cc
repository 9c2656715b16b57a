#include "core/objective/gpt/gpt.h"

#include "core/objective/finetuning.h"

namespace anyorder {

ObjectiveOrStatus MakeGptFineTuning(const ObjectiveSettings& settings) {
  return MakeFineTuning(settings,
                        {.layout = kGptLayout, .is_causal = true, .has_both_orders = true});
}

}  // namespace anyorder
