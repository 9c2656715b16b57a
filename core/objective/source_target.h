// How fine-tuning for generation lays an example out: [CLS] source [SEP] target [SEP], cut to the
// slots that there are.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/config/task_config.h"
#include "core/objective/text_sample.h"

namespace anyorder {

struct SourceTargetText {
  std::vector<int32_t> tokens;  // at most the slots asked for
  int64_t source_slots = 0;     // [CLS] source [SEP]; the target and its [SEP] follow
};

// `sample` is of SampleKind::kExamples with two parts. What is too long loses its last tokens, the
// longer part first (the target when equal), as the released code's truncate_tokens_pair does.
// REQUIRES slots >= 5.
SourceTargetText LayOutSourceTarget(const TextSample& sample, int64_t slots);

// InvalidArgument unless `task` is generation, which alone has a source and a target.
absl::Status CheckGenerates(const std::string& objective, ExampleTask task);

}  // namespace anyorder
