// What a start of a run is asked for, and everything about it that can be refused before anything
// is written. `anyorder launch` and `anyorder submit` ask the same questions.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/run/run_config.h"

namespace anyorder::launcher {

struct StartRequest {
  std::string config;  // file; empty: the run directory's frozen one
  std::string run_dir;
  int64_t ranks = 1;
  std::vector<std::string> overrides;  // section.key=value
  bool allow_schedule_change = false;  // core/train/state/resume.h
  bool may_lack_dataset =
      false;  // another job makes it first: then it is only checked if it is there
};

// InvalidArgument if `path`, which the user named in `option`, does not exist or is a directory.
// Pipes may be read.
absl::Status CheckConfigPath(const std::string& option, const std::string& path);

// The configuration of the start, with absolute directories. Errors: InvalidArgument for settings,
// ranks or a run directory that do not fit; FailedPrecondition and DataLoss for data that cannot be
// used or is not that of the run; those of the file system.
absl::StatusOr<RunConfig> ResolveStart(const StartRequest& request);

// Whether data.shards holds a dataset.
bool HasDataset(const RunConfig& config);

}  // namespace anyorder::launcher
