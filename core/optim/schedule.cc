#include "core/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace anyorder {

namespace {

// Of the way from the peak to the floor.
double Remaining(const OptimizerConfig& config, double progress) {
  if (config.decay == LearningRateDecay::kCosine)
    return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  if (config.decay == LearningRateDecay::kPolynomial)
    return std::pow(1.0 - progress, config.decay_power);
  return 1.0 - progress;
}

double StagedRate(const OptimizerConfig& config, int64_t train_steps, int64_t step) {
  const bool has_dropped = config.drop_step > 0 && step >= config.drop_step;
  const double stable = has_dropped ? config.drop_ratio : 1.0;
  const int64_t into_decay = step - (train_steps - config.decay_steps);
  if (config.decay_steps == 0 || into_decay <= 0) return config.learning_rate * stable;
  const double progress =
      std::min(1.0, static_cast<double>(into_decay) / static_cast<double>(config.decay_steps));
  const double floor = config.min_learning_rate_ratio;
  return config.learning_rate * (floor + (stable - floor) * (1.0 - progress));
}

}  // namespace

double LearningRate(const OptimizerConfig& config, int64_t train_steps, int64_t step) {
  ANYORDER_CHECK(step >= 0) << "step " << step;
  const double peak = config.learning_rate;
  if (step < config.warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  if (config.decay == LearningRateDecay::kConstant) return peak;
  if (config.decay == LearningRateDecay::kWarmupStableDecay)
    return StagedRate(config, train_steps, step);
  // A run no longer than its warm-up has no decay phase: it is at the end as soon as warm-up is
  // over.
  const int64_t decay_steps = train_steps - config.warmup_steps;
  const double progress = decay_steps <= 0
                              ? 1.0
                              : std::min(1.0, static_cast<double>(step - config.warmup_steps) /
                                                  static_cast<double>(decay_steps));
  const double floor = config.min_learning_rate_ratio;
  return peak * (floor + (1.0 - floor) * Remaining(config, progress));
}

double LayerRate(const OptimizerConfig& config, int64_t layers_above) {
  double rate = 1.0;
  for (int64_t layer = 0; layer < layers_above; ++layer) rate *= config.layer_decay;
  return rate;
}

double AverageDecay(const OptimizerConfig& config, int64_t k) {
  ANYORDER_CHECK(k >= 1) << "update " << k;
  const auto updates = static_cast<double>(k);
  return std::min(config.ema_decay, (1.0 + updates) / (10.0 + updates));
}

}  // namespace anyorder
