// A committed checkpoint without a service and without ranks: for programs that make a run's first
// checkpoint from something else than training. The files, their order on disk and the commit point
// are those of the service (PROTOCOL.md, "Write order").

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "ckpt/client.h"
#include "ckpt/layout.h"
#include "core/base/file_system.h"

namespace anyorder::ckpt {

// Writes `ranges` as the checkpoint of `id`, waits until it is committed, and reads it back. Needs
// memory for one more copy of the ranges. REQUIRES: id.world_size and id.num_nodes are 1, so that
// the ranges cover their tensors; nobody else uses `run_dir`.
// Errors: those of CommitLog; DataLoss if what was written reads back otherwise. An error leaves no
// checkpoint.
absl::Status SaveDirectly(const std::string& run_dir, const SaveIdentity& id,
                          const std::vector<TensorRange>& ranges, const std::string& metadata,
                          FileSystem* fs = FileSystem::Posix());

}  // namespace anyorder::ckpt
