#include "core/objective/bert/bert.h"

#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"

namespace anyorder {

ObjectiveOrStatus MakeBert(const ModelConfig& model, const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(CheckReadsWindows("bert", model, sampling));
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kMaskedPairs));
  return MakeMaskedLm({.name = "bert", .remembers = false, .cls_first = true}, model, sampling);
}

}  // namespace anyorder
