// Lanes whose recurrence memory begins later than the run: their states were not finite once, so
// that they were emptied and filled again as at the start of the run. A batch takes its memory as
// `step * advance` states old; this hides the rest.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/config/model_config.h"
#include "core/objective/batch.h"

namespace anyorder {

struct LaneRestart {
  int64_t lane = 0;
  int64_t step = 0;  // the first step (counted from 0) whose states the memory holds
  bool operator==(const LaneRestart&) const = default;
};

class LaneRestarts {
 public:
  // Lane `lane` restarts with step `step`.
  void Add(int64_t lane, int64_t step);
  // Drops lanes whose memory is full again before step `step`, `advance` states a step filling
  // `memory_rows`.
  void DropFull(int64_t step, int64_t advance, int64_t memory_rows);

  // Hides memory slots that hold no state, where the model hides them
  // (ModelConfig::initial_memory).
  void Apply(InitialMemory initial, Batch& batch) const;

  const std::vector<LaneRestart>& all() const { return restarts_; }
  void Restore(std::vector<LaneRestart> restarts) { restarts_ = std::move(restarts); }

 private:
  std::vector<LaneRestart> restarts_;  // by lane, each at most once
};

}  // namespace anyorder
