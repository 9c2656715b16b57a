// The checkpoint that a command of the user names: `--step N`, or the newest good one.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "ckpt/reader.h"

namespace anyorder::launcher {

// step < 0: the newest whose every byte is right; others are skipped with a warning. Otherwise that
// one, verified. Weights that a run diverged with get a warning.
// Errors: InvalidArgument for a step that is not there, FailedPrecondition for a run without a
// checkpoint; DataLoss with what to do next. Nothing of the run is changed.
absl::StatusOr<ckpt::Checkpoint> OpenSavedStep(const std::string& run_dir, int64_t step);

}  // namespace anyorder::launcher
