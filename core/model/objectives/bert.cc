#include "core/model/objectives/bert.h"

#include "core/base/status.h"
#include "core/model/objectives/lane_frame.h"
#include "core/model/objectives/masked_lm.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeBert(const ModelConfig& model,
                                                    const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(CheckReadsWindows("bert", model, sampling));
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kMaskedPairs));
  return MakeMaskedLm({.name = "bert", .remembers = false, .cls_first = true}, model, sampling);
}

}  // namespace anyorder
