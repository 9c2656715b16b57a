// The configuration of a run that is begun, as its user asks for it.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/run/run_config.h"

namespace anyorder::launcher {

// What `anyorder import` is asked for: `defaults`, or, where --config names `file`, that file,
// which is complete but for [model] and [data], those of `defaults`; then `overrides` of --set. It
// is not validated. Errors: those of CheckConfigPath, parsing and I/O.
absl::StatusOr<RunConfig> RequestedConfig(const std::string& file,
                                          const std::vector<std::string>& overrides,
                                          const RunConfig& defaults);

// Directories that the configuration names: ranks may start in another directory, and so may the
// next launch.
void MakeDirectoriesAbsolute(RunConfig& config);

}  // namespace anyorder::launcher
