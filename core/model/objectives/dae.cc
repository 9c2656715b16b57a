#include "core/model/objectives/dae.h"

#include "core/base/status.h"
#include "core/model/objectives/masked_lm.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeDae(const ModelConfig& model,
                                                   const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kMaskedPairs));
  return MakeMaskedLm({.name = "dae"}, model, sampling);
}

}  // namespace anyorder
