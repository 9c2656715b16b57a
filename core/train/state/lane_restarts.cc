#include "core/train/state/lane_restarts.h"

#include <algorithm>

#include "kernels/visibility.h"

namespace anyorder {

void LaneRestarts::Add(int64_t lane, int64_t step) {
  const auto at = std::lower_bound(
      restarts_.begin(), restarts_.end(), lane,
      [](const LaneRestart& restart, int64_t wanted) { return restart.lane < wanted; });
  if (at != restarts_.end() && at->lane == lane) {
    at->step = step;
  } else {
    restarts_.insert(at, {lane, step});
  }
}

void LaneRestarts::DropFull(int64_t step, int64_t advance, int64_t memory_rows) {
  std::erase_if(restarts_, [=](const LaneRestart& restart) {
    return (step - restart.step) * advance >= memory_rows;
  });
}

void LaneRestarts::Apply(InitialMemory initial, Batch& batch) const {
  if (initial == InitialMemory::kZeros) return;  // empty slots are seen, as zeros
  const BatchShape& shape = batch.shape;
  for (const LaneRestart& restart : restarts_) {
    const auto lane = std::find(batch.lanes.begin(), batch.lanes.end(), restart.lane);
    if (lane == batch.lanes.end()) continue;
    const int64_t held = std::min(shape.memory_rows, (batch.step - restart.step) * shape.advance);
    int32_t* doc = batch.key_doc.data() + (lane - batch.lanes.begin()) * shape.num_keys();
    // Memory keys come first, the oldest state first.
    std::fill_n(doc, shape.memory_rows - held, kernels::kDocPad);
  }
}

}  // namespace anyorder
