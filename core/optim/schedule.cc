#include "core/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace anyorder {

double LearningRate(const OptimizerConfig& config, int64_t train_steps, int64_t step) {
  ANYORDER_CHECK(step >= 0) << "step " << step;
  const double peak = config.learning_rate;
  if (step < config.warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  if (config.decay == LearningRateDecay::kConstant) return peak;
  // A run no longer than its warm-up has no decay phase: it is at the end as soon as warm-up is
  // over.
  const int64_t decay_steps = train_steps - config.warmup_steps;
  const double progress = decay_steps <= 0
                              ? 1.0
                              : std::min(1.0, static_cast<double>(step - config.warmup_steps) /
                                                  static_cast<double>(decay_steps));
  const double remaining = config.decay == LearningRateDecay::kLinear
                               ? 1.0 - progress
                               : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  const double floor = config.min_learning_rate_ratio;
  return peak * (floor + (1.0 - floor) * remaining);
}

}  // namespace anyorder
