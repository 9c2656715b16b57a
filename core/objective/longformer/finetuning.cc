#include "core/objective/finetuning.h"

#include "core/objective/longformer/longformer.h"

namespace anyorder {

ObjectiveOrStatus MakeLongformerFineTuning(const ObjectiveSettings& settings) {
  return MakeFineTuning(settings, {.layout = kLongformerLayout, .has_globals = true});
}

}  // namespace anyorder
