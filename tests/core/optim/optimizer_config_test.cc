#include "core/optim/optimizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/status_matchers.h"

namespace anyorder {
namespace {

using ::testing::HasSubstr;

// Numbers below their bounds: ConfigKeysTest.NumbersBelowTheirBoundsAreRefused.
TEST(OptimizerConfigTest, EveryFaultIsInOneMessage) {
  OptimizerConfig config = {
      .learning_rate = 0, .min_learning_rate_ratio = 1.5, .adam_beta1 = 1, .adam_epsilon = 0};
  EXPECT_THAT(config.Validate().ToStatus(),
              Fails(absl::IsInvalidArgument, "optimizer.learning_rate is 0 but must be above 0",
                    "min_learning_rate_ratio is 1.5 but must be in [0, 1]",
                    "adam_beta1 is 1 but must be in [0, 1)", "adam_epsilon is 0"));
}

// torch has no form without bias correction; who asks for torch's shall not get another.
TEST(OptimizerConfigTest, TorchsFormIsRefusedWithoutBiasCorrection) {
  OptimizerConfig config;
  config.adam_form = AdamForm::kTorch;
  EXPECT_THAT(config.Validate().ToStatus(),
              Says("adam_form is \"torch\" but optimizer.bias_correction is false"));
  config.bias_correction = true;
  EXPECT_TRUE(config.Validate().empty());
}

TEST(OptimizerConfigTest, APowerIsRefusedWhereNothingHasIt) {
  OptimizerConfig config;
  config.decay_power = 2;
  EXPECT_THAT(config.Validate().ToStatus(),
              Says("decay_power is 2 but optimizer.decay is \"linear\""));
  config.decay = LearningRateDecay::kPolynomial;
  EXPECT_TRUE(config.Validate().empty());
}

TEST(OptimizerConfigTest, StagesAreRefusedWhereTheyHaveNoEffectOrNoOrder) {
  const auto fault = [](OptimizerConfig config) { return config.Validate().Joined(); };
  OptimizerConfig config;
  config.decay_steps = 10;
  EXPECT_THAT(fault(config),
              HasSubstr("decay_steps set stages of a schedule that optimizer.decay = "
                        "\"linear\" does not have"));
  config.drop_step = 100;
  EXPECT_THAT(fault(config), HasSubstr("drop_step and drop_ratio set stages"));

  config = {};
  config.decay = LearningRateDecay::kWarmupStableDecay;
  EXPECT_THAT(fault(config), HasSubstr("the rate never falls; set optimizer.decay_steps"));
  config.drop_step = 100;
  EXPECT_THAT(fault(config), HasSubstr("drop_step is 100 and drop_ratio 1; a drop needs both"));
  config.drop_step = 0;
  config.drop_ratio = 0.25;
  EXPECT_THAT(fault(config), HasSubstr("drop_step is 0 and drop_ratio 0.25; a drop needs both"));
  config.drop_step = 100;
  EXPECT_EQ(fault(config), "");
  config.warmup_steps = 101;
  EXPECT_THAT(fault(config), HasSubstr("drop_step is 100 but must be at least "
                                       "optimizer.warmup_steps, 101"));
  config.warmup_steps = 100;
  config.decay_steps = 10;
  config.min_learning_rate_ratio = 0.5;
  EXPECT_THAT(fault(config), HasSubstr("min_learning_rate_ratio is 0.5 but must be at most "
                                       "optimizer.drop_ratio, 0.25"));
}

TEST(OptimizerConfigTest, AnAverageThatTakesInNothingIsRefused) {
  OptimizerConfig config;
  EXPECT_FALSE(config.keeps_average());
  config.ema_decay = 1;
  EXPECT_THAT(config.Validate().ToStatus(), Says("optimizer.ema_decay is 1 but must be in [0, 1)"));
  config.ema_decay = 0.9999;
  EXPECT_TRUE(config.keeps_average() && config.Validate().empty());
}

TEST(OptimizerConfigTest, NanAndInfinityAreFaults) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    for (double OptimizerConfig::*field :
         {&OptimizerConfig::learning_rate, &OptimizerConfig::min_learning_rate_ratio,
          &OptimizerConfig::adam_beta1, &OptimizerConfig::adam_beta2,
          &OptimizerConfig::adam_epsilon, &OptimizerConfig::weight_decay,
          &OptimizerConfig::max_grad_norm, &OptimizerConfig::decay_power,
          &OptimizerConfig::layer_decay, &OptimizerConfig::drop_ratio,
          &OptimizerConfig::ema_decay}) {
      OptimizerConfig config;
      config.*field = bad;
      EXPECT_FALSE(config.Validate().empty());
    }
  }
}

}  // namespace
}  // namespace anyorder
