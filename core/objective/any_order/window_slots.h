// What today's any-order objectives share: windows of text without memory.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "core/config/model_config.h"
#include "core/config/sampling_config.h"
#include "core/objective/batch.h"
#include "core/objective/text_sample.h"

namespace anyorder {

// Slots at [0, seq_len), everybody possibly seeing everybody.
struct WindowSlots {
  int64_t seq_len = 0;
  int64_t content = 0;  // slots a lane; several may stand at one position
  int64_t query = 0;
  int64_t targets = 0;
  bool own_divisor = false;
};
BatchShape WindowShape(const WindowSlots& slots, int64_t batch_size);

// InvalidArgument unless `model` and `sampling` can serve an objective of windows in any order: no
// memory, one reading direction, no next-sentence head, no same_length.
absl::Status CheckAnyOrder(const std::string& name, const ModelConfig& model,
                           const SamplingConfig& sampling);

}  // namespace anyorder
