// The configuration that `anyorder show` draws: a run's own, or one scaled to a length that fits a
// page.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "core/train/run/run_config.h"
#include "launcher/show/show.h"

namespace anyorder::launcher {

// Makes sampling.seq_len `length` and keeps its proportions: reuse_len is half of it; one token in
// as many is predicted as before (at least one); perm_size becomes the largest divisor of the half
// that is no larger than its share; mem_len keeps its share; max_span is at most a half. mask_alpha
// and mask_beta are proportions already.
void ScaleToLength(int64_t length, RunConfig& config);

// Reads, scales (if a length is named, or no configuration is), overrides, and resolves aliases of
// objectives.
absl::StatusOr<RunConfig> ShowConfig(const ShowOptions& options);

}  // namespace anyorder::launcher
