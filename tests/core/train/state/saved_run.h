// A run's checkpoint that no training made.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "core/train/state/resume.h"

namespace anyorder {

// Step 7 of `run_dir`, by one rank, with moments of zero. `edit` may change the metadata, JSON,
// before they are written. `average` of the weights: none if empty. `base` of adapters.
inline absl::Status SaveRun(const std::string& run_dir, const RunConfig& config,
                            const ParameterLayout& layout, const std::vector<float>& master,
                            const std::function<std::string(const std::string&)>& edit = {},
                            const std::vector<float>& average = {},
                            const BaseCheckpoint& base = {}) {
  const std::vector<float> zeros(master.size());
  const int64_t elements = layout.num_elements();
  std::vector<ckpt::TensorRange> ranges;
  for (const char* name : {"master", "adam_m", "adam_v"})
    ranges.push_back({name, DType::kFloat32, Shape{elements}, 0, elements, zeros.data()});
  ranges.front().data = master.data();
  if (!average.empty())
    ranges.push_back({"ema", DType::kFloat32, Shape{elements}, 0, elements, average.data()});
  TrainMetadata metadata = {.step = 7,
                            .base = base,
                            .config_digest = config.IdentityDigest(),
                            .dataset_digest = "dataset",
                            .tokenizer_digest = "tokenizer",
                            .config_text = config.ToText()};
  const std::string text = SerializeMetadata(metadata, layout);
  return ckpt::SaveDirectly(run_dir,
                            {"run", 0, metadata.step * ckpt::kSavesPerStep, metadata.step, 1, 1},
                            ranges, edit ? edit(text) : text);
}

}  // namespace anyorder
