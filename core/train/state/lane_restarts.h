// Lanes whose recurrence memory begins later than the run: their states were not finite once, so
// that they were emptied and filled again as at the start of the run. A batch takes its memory as
// `step * advance` states old; this hides the rest.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "kernels/visibility.h"

namespace anyorder {

struct LaneRestart {
  int64_t lane = 0;
  int64_t step = 0;  // the first step (counted from 0) whose states the memory holds
  bool operator==(const LaneRestart&) const = default;
};

class LaneRestarts {
 public:
  // Lane `lane` restarts with step `step`.
  void Add(int64_t lane, int64_t step) {
    const auto at = std::lower_bound(
        restarts_.begin(), restarts_.end(), lane,
        [](const LaneRestart& restart, int64_t wanted) { return restart.lane < wanted; });
    if (at != restarts_.end() && at->lane == lane) {
      at->step = step;
    } else {
      restarts_.insert(at, {lane, step});
    }
  }
  // Drops lanes whose memory is full again before step `step`, `advance` states a step filling
  // `memory_rows`.
  void DropFull(int64_t step, int64_t advance, int64_t memory_rows) {
    std::erase_if(restarts_, [=](const LaneRestart& restart) {
      return (step - restart.step) * advance >= memory_rows;
    });
  }

  // Hides memory slots that hold no state, where the model hides them
  // (ModelConfig::initial_memory).
  void Apply(InitialMemory initial, Batch& batch) const {
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

  const std::vector<LaneRestart>& all() const { return restarts_; }
  void Restore(std::vector<LaneRestart> restarts) { restarts_ = std::move(restarts); }

 private:
  std::vector<LaneRestart> restarts_;  // by lane, each at most once
};

}  // namespace anyorder
