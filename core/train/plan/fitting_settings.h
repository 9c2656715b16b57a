// Which settings make a run fit that does not, found by trying.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/train/plan/planned_rank.h"
#include "core/train/run/run_config.h"

namespace anyorder {

using FitsFunction = absl::FunctionRef<bool(const RunConfig& candidate)>;

// The fewest and cheapest changes that `fits` says yes to, as --set takes them; none changes a bit
// of the result. They are tried in the order of what they cost: recomputation of element-wise
// operations, exchanges after fewer microbatches, recomputation of layers, weights sharded over a
// node, over all ranks, one staged copy, the host's memory. Empty if nothing fits.
std::vector<std::string> SettingsThatFit(const RunConfig& config, const Cluster& cluster,
                                         FitsFunction fits);

// The largest batch sizes that the run allows and `fits` says yes to, the step's before the
// microbatch's, likewise. Another train.global_batch_size is another run.
std::vector<std::string> BatchThatFits(const RunConfig& config, int64_t ranks, FitsFunction fits);

// "--set a=1 --set b=x", or "".
inline std::string SettingOptions(const std::vector<std::string>& settings) {
  return settings.empty() ? "" : absl::StrCat("--set ", absl::StrJoin(settings, " --set "));
}

}  // namespace anyorder
