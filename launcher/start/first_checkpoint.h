// The checkpoint of step 0 of a run that begins with weights from elsewhere, and what its ledger
// says of them.

#pragma once

#include <string>

#include "absl/status/status.h"

#include "core/network/tensors/parameters.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"

namespace anyorder::launcher {

// Saves `master` [layout.num_elements()], fp32, with Adam moments of zero and no memory, and
// verifies it. `metadata` has neither dataset nor configuration digest
// (TrainMetadata::is_imported).
// Errors: ResourceExhausted; those of ckpt::SaveDirectly.
absl::Status SaveFirstCheckpoint(const RunDirectory& paths, const std::string& run_id,
                                 const ParameterLayout& layout, const float* master,
                                 const TrainMetadata& metadata);

// A new ledger: created, imported from `source`, committed at step 0.
absl::Status RecordImport(const RunDirectory& paths, const std::string& run_id,
                          const std::string& source);

}  // namespace anyorder::launcher
