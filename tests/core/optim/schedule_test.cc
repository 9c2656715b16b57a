#include "core/optim/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace anyorder {
namespace {

OptimizerConfig Config(LearningRateDecay decay, int64_t warmup_steps) {
  return {.learning_rate = 4e-4,
          .min_learning_rate_ratio = 0.001,
          .warmup_steps = warmup_steps,
          .decay = decay};
}

// A product and two sums in double.
constexpr double kBound = 4 * 4e-4 * 0x1p-53;

TEST(LearningRateTest, ConformsAtTheCornersOfThePublishedSchedule) {
  for (const auto decay : {LearningRateDecay::kLinear, LearningRateDecay::kCosine}) {
    const OptimizerConfig config = Config(decay, 40000);
    EXPECT_EQ(LearningRate(config, 500000, 0), 0.0);
    EXPECT_NEAR(LearningRate(config, 500000, 10000), 1e-4, kBound);
    EXPECT_NEAR(LearningRate(config, 500000, 40000), 4e-4, kBound);
    EXPECT_NEAR(LearningRate(config, 500000, 500000), 4e-7, kBound);
    EXPECT_EQ(LearningRate(config, 500000, 500001), LearningRate(config, 500000, 500000));
    EXPECT_EQ(LearningRate(config, 500000, 9000000), LearningRate(config, 500000, 500000));
    // Half way both shapes are at the middle of peak and floor.
    EXPECT_NEAR(LearningRate(config, 500000, 270000), (4e-4 + 4e-7) / 2, kBound);
  }
}

TEST(LearningRateTest, LinearAndCosineDifferBetweenTheCorners) {
  const double linear = LearningRate(Config(LearningRateDecay::kLinear, 0), 1000, 250);
  const double cosine = LearningRate(Config(LearningRateDecay::kCosine, 0), 1000, 250);
  EXPECT_NEAR(linear, 4e-4 * (0.001 + 0.999 * 0.75), kBound);
  EXPECT_NEAR(cosine, 4e-4 * (0.001 + 0.999 * 0.5 * (1 + std::sqrt(0.5))), kBound);
}

// Of the formula in more than double, each step of the run: the power to one unit, the fraction
// before it to one, which a power multiplies.
TEST(LearningRateTest, PolynomialFollowsItsFormulaStepByStep) {
  for (const double power : {0.5, 1.0, 2.0, 3.5}) {
    OptimizerConfig config = Config(LearningRateDecay::kPolynomial, 10);
    config.decay_power = power;
    for (int64_t step = 10; step <= 110; ++step) {
      const long double left = 1 - static_cast<long double>(step - 10) / 100;
      const long double floor = 4e-4L * 0.001L;
      const long double expected = (4e-4L - floor) * std::pow(left, power) + floor;
      EXPECT_NEAR(LearningRate(config, 110, step), static_cast<double>(expected),
                  (1 + power) * kBound)
          << "step " << step << ", power " << power;
    }
    EXPECT_NEAR(LearningRate(config, 110, 111), 4e-7, kBound);
  }
}

TEST(LearningRateTest, PolynomialOfPowerOneIsLinear) {
  for (int64_t step = 0; step <= 120; ++step) {
    EXPECT_EQ(LearningRate(Config(LearningRateDecay::kPolynomial, 7), 100, step),
              LearningRate(Config(LearningRateDecay::kLinear, 7), 100, step));
  }
}

// Peak, a drop at step 600, and the last 150 of 1000 steps: each step of the run against the stages
// in more than double, and each multiplication and sum at one unit of the peak.
TEST(LearningRateTest, WarmupStableDecayFollowsItsStagesStepByStep) {
  OptimizerConfig config = Config(LearningRateDecay::kWarmupStableDecay, 20);
  config.min_learning_rate_ratio = 0.025;  // 1e-5 of 4e-4, as LLaDA
  config.drop_step = 600;
  config.drop_ratio = 0.25;
  config.decay_steps = 150;
  for (int64_t step = 0; step <= 1200; ++step) {
    long double expected = 4e-4L;
    if (step < 20) {
      expected = 4e-4L * static_cast<long double>(step) / 20;
    } else if (step >= 850) {
      const long double left = std::max<long double>(0, (1000 - static_cast<long double>(step)));
      expected = 1e-5L + (1e-4L - 1e-5L) * left / 150;
    } else if (step >= 600) {
      expected = 1e-4L;
    }
    EXPECT_NEAR(LearningRate(config, 1000, step), static_cast<double>(expected), 2 * kBound)
        << step;
  }
  EXPECT_EQ(LearningRate(config, 1000, 599), 4e-4);
  EXPECT_EQ(LearningRate(config, 1000, 600), LearningRate(config, 1000, 850));
}

// As LLaDA was fine-tuned, and without a fall at the end.
TEST(LearningRateTest, WarmupStableDecayHasTheStagesThatAreAskedFor) {
  OptimizerConfig config = Config(LearningRateDecay::kWarmupStableDecay, 0);
  config.min_learning_rate_ratio = 0.1;
  config.decay_steps = 100;
  for (int64_t step = 0; step <= 900; ++step) EXPECT_EQ(LearningRate(config, 1000, step), 4e-4);
  EXPECT_NEAR(LearningRate(config, 1000, 950), 4e-4 * 0.55, kBound);
  EXPECT_NEAR(LearningRate(config, 1000, 1000), 4e-5, kBound);
  config.decay_steps = 0;
  config.drop_step = 500;
  config.drop_ratio = 0.5;
  EXPECT_EQ(LearningRate(config, 1000, 499), 4e-4);
  EXPECT_EQ(LearningRate(config, 1000, 500), 2e-4);
  EXPECT_EQ(LearningRate(config, 1000, 2000), 2e-4);
  // The fall may begin where the drop is.
  config.drop_step = 900;
  config.decay_steps = 100;
  EXPECT_EQ(LearningRate(config, 1000, 899), 4e-4);
  EXPECT_NEAR(LearningRate(config, 1000, 901), 4e-4 * (0.1 + 0.4 * 0.99), kBound);
}

TEST(LayerRateTest, FallsByItsFactorWithEachLayerAbove) {
  OptimizerConfig config;
  EXPECT_EQ(LayerRate(config, 24), 1);
  config.layer_decay = 0.75;
  EXPECT_EQ(LayerRate(config, 0), 1);
  EXPECT_EQ(LayerRate(config, 2), 0.5625);
  EXPECT_NEAR(LayerRate(config, 24), std::pow(0.75, 24), 24 * 0x1p-53 * std::pow(0.75, 24));
}

// MDLM's warm-up of the decay: 2/11, 3/12, ... until it would be above ema_decay, at
// (1 + k) / (10 + k) = 0.99, k = 890.
TEST(AverageDecayTest, RisesToItsBoundWithTheUpdates) {
  OptimizerConfig config;
  config.ema_decay = 0.99;
  for (int64_t k = 1; k <= 2000; ++k) {
    const long double k_long = static_cast<long double>(k);
    const long double expected = k < 890 ? (1 + k_long) / (10 + k_long) : 0.99L;
    EXPECT_NEAR(AverageDecay(config, k), static_cast<double>(expected), 0x1p-53) << k;
  }
  config.ema_decay = 0.1;
  EXPECT_EQ(AverageDecay(config, 1), 0.1);
}

TEST(LearningRateTest, ConstantStaysAtThePeak) {
  const OptimizerConfig config = Config(LearningRateDecay::kConstant, 10);
  EXPECT_EQ(LearningRate(config, 100, 0), 0.0);
  EXPECT_EQ(LearningRate(config, 100, 10), 4e-4);
  EXPECT_EQ(LearningRate(config, 100, 1000), 4e-4);
}

TEST(LearningRateTest, ARunShorterThanItsWarmUpNeverDecaysBelowTheFloor) {
  const OptimizerConfig config = Config(LearningRateDecay::kLinear, 100);
  EXPECT_NEAR(LearningRate(config, 50, 49), 4e-4 * 0.49, kBound);
  EXPECT_NEAR(LearningRate(config, 100, 100), 4e-7, kBound);
}

}  // namespace
}  // namespace anyorder
