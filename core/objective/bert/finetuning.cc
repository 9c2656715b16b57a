#include "core/objective/finetuning.h"

#include "core/objective/bert/bert.h"

namespace anyorder {

ObjectiveOrStatus MakeBertFineTuning(const ObjectiveSettings& settings) {
  return MakeFineTuning(settings, {.layout = kBertLayout, .num_segments = 2});
}

}  // namespace anyorder
