// What today's any-order objectives share: windows of text without memory, whose slots carry ranks
// and groups of their own.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "core/config/model_config.h"
#include "core/config/sampling_config.h"
#include "core/objective/batch.h"
#include "kernels/visibility.h"

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

// A key is seen where key <= lim, or within a group; kernels/visibility.h.
struct Slot {
  int32_t token = 0;  // content slots only
  int32_t pos = 0;
  int32_t lim = 0;
  int32_t key = kernels::kKeyNever;  // content slots only
  int32_t grp = -1;
  int32_t doc = 0;
};
// Nobody sees it, it sees nothing, nothing is read from it.
Slot PadSlot(int64_t pos);
// A content slot of rank `rank`: it sees ranks up to its own.
Slot RankedSlot(int32_t token, int64_t pos, int32_t rank);

void SetContentSlot(int64_t b, int64_t slot, const Slot& value, Batch& batch);
void SetQuerySlot(int64_t b, int64_t slot, const Slot& value, Batch& batch);
// Entry `entry` of lane b's readout: row `row` of the batch is to predict `label`.
void SetReadout(int64_t b, int64_t entry, int64_t row, int32_t label, float weight, Batch& batch);

// InvalidArgument unless `model` and `sampling` can serve an objective of windows in any order: no
// memory, one reading direction, no next-sentence head, no same_length.
absl::Status CheckAnyOrder(const std::string& name, const ModelConfig& model,
                           const SamplingConfig& sampling);

}  // namespace anyorder
