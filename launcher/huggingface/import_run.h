// `anyorder import --format run`: a new run begins with the weights of another one's checkpoint.
// For continued pretraining with other settings, other text of the same vocabulary, longer text and
// wider windows: a table of learned positions grows, global slots get projections of their own
// (core/network/weight_transfer.h).

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "launcher/huggingface/import_hf.h"

namespace anyorder::launcher {

struct ImportRunOptions : ImportOptions {  // input: the other run's directory
  int64_t step = -1;                       // -1: its newest good checkpoint
  std::string positions = "copy";          // or "random"
};

// Makes a run directory at step 0: the weights in fp32, Adam moments zero, no memory. Its
// configuration is the other run's, or that of options.config, with the overrides; training goes by
// it from the first step on. The directory appears complete or not at all; the other run is not
// changed.
// Errors: InvalidArgument for a model that cannot begin with these weights; NotFound and DataLoss
// of the checkpoint; I/O.
absl::Status ImportRun(const ImportRunOptions& options);

}  // namespace anyorder::launcher
