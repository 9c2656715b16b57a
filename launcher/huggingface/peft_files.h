// Adapters of a run (core/config/lora_config.h) as peft reads them, beside the Hugging Face model
// that the run's base is: adapter_config.json and adapter_model.safetensors.

#pragma once

#include <string>

#include "absl/status/status.h"

#include "ckpt/reader.h"
#include "core/base/dtype.h"
#include "core/train/run/run_config.h"
#include "core/train/state/weight_reader.h"
#include "launcher/huggingface/families/file_tensor.h"

namespace anyorder::launcher {

struct PeftExport {
  const ckpt::Checkpoint& checkpoint;  // of a run with adapters
  const RunConfig& config;             // the run's
  WeightChoice choice = WeightChoice::kAverage;
  DType dtype = DType::kFloat32;  // of the tensors: kFloat32 or kBFloat16
  bool has_output = true;         // whether the class has an output of the language model
  std::string task_type;          // as peft names it: "CAUSAL_LM", ...; "": none
  std::string base_name;          // what peft calls base_model_name_or_path; may be empty
};

// Writes both files to `directory`. `tensors` are the family's of the whole network, whose
// parameters are `network`. peft puts an adapter beside a module with one weight of its own, and
// saves modules that are trained whole, each with all of its tensors; what several modules share is
// written for each. FailedPrecondition naming a projection or a trained tensor that is no such
// module in this family. DataLoss of the checkpoint; I/O.
absl::Status WritePeftFiles(const PeftExport& work, const ParameterLayout& network,
                            const TensorTable& tensors, const std::string& directory);

}  // namespace anyorder::launcher
