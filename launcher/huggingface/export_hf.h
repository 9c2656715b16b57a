// `anyorder export --format hf`: a checkpoint as the files that Hugging Face's XLNetLMHeadModel
// loads.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace anyorder::launcher {

struct ExportOptions {
  std::string run_dir;
  int64_t step = -1;  // -1: the newest good checkpoint
  std::string output;
};

// Writes model.safetensors (fp32), config.json, spiece.model, tokenizer_config.json and
// special_tokens_map.json. The directory appears complete or not at all.
// Errors: AlreadyExists if `output` is not empty; FailedPrecondition for what XLNetLMHeadModel
// cannot represent, or if the dataset is not the run's; NotFound for a step without checkpoint;
// DataLoss.
absl::Status ExportHuggingFace(const ExportOptions& options);

}  // namespace anyorder::launcher
