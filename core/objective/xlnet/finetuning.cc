#include "core/objective/finetuning.h"

#include "core/objective/xlnet/xlnet.h"

namespace anyorder {

ObjectiveOrStatus MakeXlnetFineTuning(const ObjectiveSettings& settings) {
  FineTuningForm form{.layout = kXlnetLayout, .num_segments = 3, .passage_first = true};
  // Learned segments are rows of a table, of which there are three.
  form.layout.has_more_segments = settings.model.relative_segments();
  return MakeFineTuning(settings, form);
}

}  // namespace anyorder
