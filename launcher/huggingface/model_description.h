// Exported weights described: config.json of `export --format safetensors`, which is all that a
// loader of the tensors must know of the network (FORMAT.md lists its members; load_anyorder.py
// reads them); and what a directory of weights is and holds.

#pragma once

#include <nlohmann/json.hpp>

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

// InvalidArgument for windows that cannot be read and for an unknown objective.
absl::StatusOr<std::string> DescribeModel(const ModelDescription& model);

// Whether it is a directory of weights that `anyorder export` or Hugging Face's save_pretrained
// wrote: it has a config.json, which neither runs, checkpoints nor datasets have.
bool IsModelDirectory(const std::string& directory);

// An object for people and programs: "kind" is "model"; what wrote it, which network, its files.
// `verify`: reads every value; the format has no checksums. `with_tensors`: names each.
// Errors: those of HfWeights::Open; DataLoss for a config.json that is none, and with `verify` for
// a value that is not finite.
absl::StatusOr<nlohmann::ordered_json> DescribeModelDirectory(const std::string& directory,
                                                              bool verify, bool with_tensors);

}  // namespace anyorder::launcher
