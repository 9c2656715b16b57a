// config.json of `export --format safetensors`: all that a loader of the tensors must know of the
// network (FORMAT.md lists its members; load_anyorder.py reads them).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/dtype.h"
#include "core/train/run/run_config.h"

namespace anyorder::launcher {

// "model_type" of such a config.json.
inline constexpr char kAnyorderModelType[] = "anyorder";

struct ModelDescription {
  RunConfig config;
  int64_t step = 0;
  int64_t vocab_size = 0;
  DType dtype = DType::kFloat32;     // of the exported tensors
  std::vector<std::string> classes;  // names of a classifier's labels, if they have any
  std::string tokenizer_digest;
};

// InvalidArgument for windows that cannot be read.
absl::StatusOr<std::string> DescribeModel(const ModelDescription& model);

}  // namespace anyorder::launcher
