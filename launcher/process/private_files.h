// `run.private`: files that nobody but this user may read.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace anyorder::launcher {

// umask 077 for this process and all that it starts, as steps of Slurm, too. Files that are there
// already stay as they are. Not while other threads make files.
void KeepFilesPrivate();

// Takes from a directory of ours what others may do in it, whatever is in it already.
absl::Status CloseToOthers(const std::string& directory);

}  // namespace anyorder::launcher
