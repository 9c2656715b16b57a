// What a directory of exported weights is and holds: one that `anyorder export` or Hugging Face's
// save_pretrained wrote.

#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

// Whether it has a config.json, which neither runs, checkpoints nor datasets have.
bool IsModelDirectory(const std::string& directory);

struct ModelDirectoryOptions {
  std::string path;
  bool verify = false;       // read every value; the format has no checksums
  bool with_tensors = true;  // name each
};

// An object for people and programs: "kind" is "model"; what wrote it, which network, its files.
// Errors: those of HfWeights::Open; DataLoss for a config.json that is none, and with `verify` for
// a value that is not finite.
absl::StatusOr<nlohmann::ordered_json> DescribeModelDirectory(const ModelDirectoryOptions& options);

}  // namespace anyorder::launcher
