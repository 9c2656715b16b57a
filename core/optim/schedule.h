// The learning rate as a pure function of the step, so that nothing about it is saved or restored.

#pragma once

#include <cstdint>

#include "core/optim/optimizer_config.h"

namespace anyorder {

// The rate of 0-based `step` in a run of `train_steps`, taken before the update. With a warm-up of
// w > 0 steps: 0 at step 0 (the first update changes nothing but the moments, as in the published
// code), the peak at step w, peak * min_learning_rate_ratio at step train_steps and for ever after.
// `constant` stays at the peak. REQUIRES: config is valid, step >= 0.
double LearningRate(const OptimizerConfig& config, int64_t train_steps, int64_t step);

}  // namespace anyorder
