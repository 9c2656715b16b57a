#include "core/objective/gpt/gpt.h"

#include "core/base/status.h"
#include "core/objective/causal_lm.h"
#include "core/objective/lane_frame.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeGpt(const ModelConfig& model,
                                                   const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(CheckReadsWindows("gpt", model, sampling));
  return MakeCausalLmNamed("gpt", model, sampling);
}

}  // namespace anyorder
