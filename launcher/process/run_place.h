// Where a new run may begin.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace anyorder::launcher {

// InvalidArgument if `run_dir` is a file, or a directory of other things than a run: a mistyped
// path must not mix a run's files, of which checkpoints are deleted by age, with other files.
// What a batch system puts there before the run begins (names that begin with slurm or submit) may
// be there.
absl::Status CheckPlaceOfRun(const std::string& run_dir);

}  // namespace anyorder::launcher
