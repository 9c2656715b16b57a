#include "core/objective/finetuning.h"

#include "core/objective/xlnet/xlnet.h"

namespace anyorder {

ObjectiveOrStatus MakeXlnetFineTuning(const ObjectiveSettings& settings) {
  return MakeFineTuning(settings,
                        {.layout = kXlnetLayout, .num_segments = 3, .passage_first = true});
}

}  // namespace anyorder
