#include "core/objective/bert/bert.h"

#include "core/objective/masked_lm.h"

namespace anyorder {

ObjectiveOrStatus MakeBert(const ObjectiveSettings& settings) {
  return MakeMaskedLm({.remembers = false, .cls_first = true}, settings);
}

}  // namespace anyorder
