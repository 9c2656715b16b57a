#include "core/optim/optimizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace anyorder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OptimizerConfigTest, DefaultsAreValid) {
  EXPECT_TRUE(OptimizerConfig().Validate().ok());
}

TEST(OptimizerConfigTest, EveryFaultIsInOneMessage) {
  OptimizerConfig config;
  config.learning_rate = 0;
  config.min_learning_rate_ratio = 1.5;
  config.warmup_steps = -1;
  config.adam_beta1 = 1;
  config.adam_beta2 = -0.1;
  config.adam_epsilon = 0;
  config.weight_decay = -1;
  config.max_grad_norm = -2;
  const absl::Status status = config.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("learning_rate = 0 must be > 0"),
                    HasSubstr("min_learning_rate_ratio = 1.5 must be in [0, 1]"),
                    HasSubstr("warmup_steps = -1"), HasSubstr("adam_beta1 = 1"),
                    HasSubstr("adam_beta2 = -0.1"), HasSubstr("adam_epsilon = 0"),
                    HasSubstr("weight_decay = -1"), HasSubstr("max_grad_norm = -2")));
}

TEST(OptimizerConfigTest, NanAndInfinityAreFaults) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    for (double OptimizerConfig::*field :
         {&OptimizerConfig::learning_rate, &OptimizerConfig::min_learning_rate_ratio,
          &OptimizerConfig::adam_beta1, &OptimizerConfig::adam_beta2,
          &OptimizerConfig::adam_epsilon, &OptimizerConfig::weight_decay,
          &OptimizerConfig::max_grad_norm}) {
      OptimizerConfig config;
      config.*field = bad;
      EXPECT_FALSE(config.Validate().ok());
    }
  }
}

TEST(OptimizerConfigTest, EveryFieldIsVisitedOnce) {
  std::vector<std::string> names;
  auto visitor = [&names](const char* name, auto&, const char*) { names.push_back(name); };
  OptimizerConfig config;
  OptimizerConfig::VisitFields(config, visitor);
  EXPECT_THAT(names,
              ::testing::ElementsAre("learning_rate", "min_learning_rate_ratio", "warmup_steps",
                                     "decay", "adam_beta1", "adam_beta2", "adam_epsilon",
                                     "weight_decay", "bias_correction", "max_grad_norm"));
}

}  // namespace
}  // namespace anyorder
