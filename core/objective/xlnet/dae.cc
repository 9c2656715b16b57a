#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/objective/masked_lm.h"
#include "core/objective/xlnet/xlnet.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeDae(const ModelConfig& model,
                                                   const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kMaskedPairs));
  FaultList faults;
  faults.Require(sampling.short_sequence_prob == 0,
                 absl::StrCat("sampling.short_sequence_prob is ", sampling.short_sequence_prob,
                              " but must be 0: the memory of dae would remember padding"));
  faults.Require(sampling.pairs == PairStyle::kXlnet,
                 "sampling.pairs is \"bert\" but must be \"xlnet\": dae remembers the reuse part");
  if (!faults.empty()) return absl::InvalidArgumentError(faults.Joined());
  return MakeMaskedLm({.name = "dae"}, model, sampling);
}

}  // namespace anyorder
