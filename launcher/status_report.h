// `anyorder status`: what a run is doing, from the files in its directory alone.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace anyorder::launcher {

struct StatusOptions {
  std::string run_dir;
  bool json = false;
};

// Prints to stdout. NotFound if the directory holds no run.
absl::Status PrintStatus(const StatusOptions& options);

}  // namespace anyorder::launcher
