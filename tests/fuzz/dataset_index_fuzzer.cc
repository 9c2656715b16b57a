// dataset.json, with its digest made to fit, beside sound shards.

#include <nlohmann/json.hpp>

#include "core/base/digest.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_dataset.h"

namespace anyorder::fuzz {

std::vector<std::string> Seeds() {
  return {SmallDataset().FileOf(data::kIndexFile)};
}

}  // namespace anyorder::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace anyorder;
  static const fuzz::SmallDataset dataset;
  const std::string text(fuzz::TextOf(input, size));
  dataset.scratch().Store(data::kIndexFile, text);
  dataset.Use();
  nlohmann::json root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return 0;
  root.erase("dataset_digest");
  root["dataset_digest"] = DigestOf(root.dump()).Hex();
  dataset.scratch().Store(data::kIndexFile, root.dump());
  dataset.Use();
  return 0;
}
