// dataset.json, with its digest made to fit, beside sound shards.

#include <nlohmann/json.hpp>

#include "core/base/digest.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_dataset.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() { return {SmallDataset().FileOf(data::kIndexFile)}; }

void Run(absl::string_view text) {
  static const SmallDataset dataset;
  const std::string index(text);
  dataset.scratch().Store(data::kIndexFile, index);
  dataset.Use();
  nlohmann::json root = nlohmann::json::parse(index, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return;
  root.erase("dataset_digest");
  root["dataset_digest"] = DigestOf(root.dump()).Hex();
  dataset.scratch().Store(data::kIndexFile, root.dump());
  dataset.Use();
}

const bool registered = Register({"dataset_index", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
