// `anyorder import --format hf`: a model directory of Hugging Face becomes a run whose first
// checkpoint is its weights.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace anyorder::launcher {

struct ImportOptions {
  std::string input;                   // config.json, weights as safetensors, spiece.model
  std::string output;                  // the run directory to make
  std::string config;                  // TOML, or empty: settings for continued pretraining
  std::vector<std::string> overrides;  // section.key=value
};

// Makes a run directory at step 0: the weights in fp32, Adam moments zero, no memory. `anyorder
// launch` trains it with any number of ranks; what it may still choose then is said in README.md,
// "Import". The directory appears complete or not at all. Prints what was imported, what was
// left out, and the commands that go on.
// Errors, each naming file and what to do: InvalidArgument and AlreadyExists for the command line
// and a configuration that contradicts the model; DataLoss and FailedPrecondition for the input
// (hf_config.h, hf_weights.h, spiece_file.h); I/O.
absl::Status ImportHuggingFace(const ImportOptions& options);

}  // namespace anyorder::launcher
