#include "core/train/run/anomaly_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace anyorder {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

AnomalyConfig Config() {
  return {.on_spike = AnomalyAction::kSkip, .spike_factor = 4, .spike_window = 10};
}

// Losses 5 and 7 in turn: mean 6, deviation 1 up to what the exponential means move.
AnomalyPolicy Trained(const AnomalyConfig& config, int64_t steps) {
  AnomalyPolicy policy(config);
  for (int64_t i = 0; i < steps; ++i) policy.CountTrained(i % 2 == 0 ? 5 : 7, 1);
  return policy;
}

TEST(AnomalyPolicyTest, SpikeIsFarAboveTheMeanInDeviations) {
  const AnomalyConfig config = Config();
  const AnomalyPolicy policy = Trained(config, 200);
  EXPECT_NEAR(policy.state().loss.mean, 6, 0.2);
  EXPECT_NEAR(policy.state().loss.deviation, 1, 0.1);
  EXPECT_EQ(policy.Judge(1, 9, 1), Anomaly::kNone);
  EXPECT_EQ(policy.Judge(1, 11, 1), Anomaly::kSpike);
  EXPECT_EQ(policy.Judge(1, 0, 0), Anomaly::kNone);  // down is no harm
  // The norm never moved: a hundredth of it stands for its deviation.
  EXPECT_EQ(policy.Judge(1, 6, 1.03), Anomaly::kNone);
  EXPECT_EQ(policy.Judge(1, 6, 1.05), Anomaly::kSpike);
}

TEST(AnomalyPolicyTest, NothingIsASpikeBeforeTheWindowIsFull) {
  const AnomalyConfig config = Config();
  EXPECT_EQ(Trained(config, 9).Judge(1, 1e9, 1e9), Anomaly::kNone);
  EXPECT_EQ(Trained(config, 10).Judge(1, 1e9, 1e9), Anomaly::kSpike);
}

TEST(AnomalyPolicyTest, WhatIsNotFiniteIsFoundAtOnce) {
  const AnomalyConfig config = Config();
  const AnomalyPolicy policy(config);
  for (const double bad : {kNan, kInf, -kInf}) {
    EXPECT_EQ(policy.Judge(1, bad, 1), Anomaly::kNonfinite);
    EXPECT_EQ(policy.Judge(1, 1, bad), Anomaly::kNonfinite);
  }
}

// The device knows the bound only; what it does must be what Judge says, to the last bit of the
// norm.
TEST(AnomalyPolicyTest, BoundThatGoesWithTheUpdateSaysWhatJudgeSays) {
  const double far = std::numeric_limits<double>::max();
  for (const AnomalyAction action :
       {AnomalyAction::kIgnore, AnomalyAction::kSkip, AnomalyAction::kStop}) {
    for (const int64_t steps : {0, 9, 10, 200}) {
      AnomalyConfig config = Config();
      config.on_spike = action;
      AnomalyPolicy policy = Trained(config, steps);
      policy.ScheduleSkip({{300, 301}});
      const double most = policy.SkipAboveNorm();
      EXPECT_EQ(std::isfinite(most), action != AnomalyAction::kIgnore && steps >= 10);
      int skipped = 0;
      for (const int64_t step : {300, 301}) {
        for (const double loss : {6.0, -kInf, kNan, 1e9}) {
          for (const double norm :
               {0.0, 1.0, most, std::nextafter(most, 0.0), std::nextafter(most, far), far, kNan}) {
            const bool is_good =
                !policy.SkipsUpdate(step, loss) && std::isfinite(norm) && norm <= most;
            EXPECT_EQ(policy.ActionFor(policy.Judge(step, loss, norm)) == AnomalyAction::kIgnore,
                      is_good)
                << step << ", loss " << loss << ", norm " << norm;
            skipped += is_good ? 0 : 1;
          }
        }
      }
      EXPECT_GT(skipped, 28);
      EXPECT_LT(skipped, 56);
    }
  }
}

TEST(AnomalyPolicyTest, SkippedStepsLeaveTheMeansAndCountInARow) {
  AnomalyConfig config = Config();
  config.max_skipped_in_a_row = 2;
  AnomalyPolicy policy = Trained(config, 20);
  const AnomalyState before = policy.state();
  policy.CountSkipped(Anomaly::kSpike, true);
  EXPECT_TRUE(policy.CheckProgress(21).ok());
  EXPECT_EQ(policy.state().loss.mean, before.loss.mean);
  policy.CountTrained(6, 1);
  policy.CountSkipped(Anomaly::kSpike, true);
  EXPECT_TRUE(policy.CheckProgress(23).ok());
  policy.CountSkipped(Anomaly::kSpike, true);
  EXPECT_THAT(policy.CheckProgress(24), Says("steps 23 to 24 were skipped"));
}

// A run is finished unless its last step was not finite, or several at its end were skipped for
// what they were.
TEST(AnomalyPolicyTest, ARunThatEndsInSkippedStepsIsNotFinished) {
  const AnomalyConfig config = Config();
  const auto end = [&config](std::vector<std::pair<Anomaly, bool>> skipped) {
    AnomalyPolicy policy = Trained(config, 5);
    for (const auto& [anomaly, is_finite] : skipped) policy.CountSkipped(anomaly, is_finite);
    return policy.CheckEnd(5 + static_cast<int64_t>(skipped.size()));
  };
  const std::pair<Anomaly, bool> nan = {Anomaly::kNonfinite, false},
                                 spike = {Anomaly::kSpike, true},
                                 held = {Anomaly::kRolledBack, true},
                                 held_nan = {Anomaly::kRolledBack, false};
  for (const auto& finished : {end({}), end({spike}), end({held}), end({held, held, spike}),
                               end({nan, spike, held, held})})
    EXPECT_TRUE(finished.ok()) << finished;
  for (const auto& diverged : {end({nan}), end({held_nan}), end({spike, spike}), end({nan, spike})})
    EXPECT_TRUE(absl::IsAborted(diverged)) << diverged;
  const std::string message(end({nan, nan, nan}).message());
  EXPECT_THAT(message, HasSubstr("diverged: steps 6 to 8 were skipped, to the last; "));
  EXPECT_THAT(message, HasSubstr("--allow-schedule-change --set optimizer.learning_rate="));
  EXPECT_THAT(end({nan}), Says("diverged: step 6 was skipped"));
}

TEST(AnomalyPolicyTest, HoldsBackTheStepsOfARollback) {
  AnomalyConfig config = Config();
  config.rollback_steps = 3;
  AnomalyPolicy policy(config);
  policy.ScheduleSkip({policy.RollbackFrom(10), policy.RollbackFrom(2)});
  for (int64_t step = 1; step <= 12; ++step) {
    const bool is_scheduled = step <= 2 || (step >= 8 && step <= 10);
    EXPECT_EQ(policy.Judge(step, 6, 1), is_scheduled ? Anomaly::kRolledBack : Anomaly::kNone)
        << step;
  }
  EXPECT_EQ(policy.ActionFor(Anomaly::kRolledBack), AnomalyAction::kSkip);
}

TEST(AnomalyPolicyTest, ConfigurationThatCannotWorkIsRefused) {
  AnomalyConfig config;
  EXPECT_TRUE(config.Validate().empty());
  config.on_nonfinite = AnomalyAction::kIgnore;
  config.spike_factor = kInf;
  config.spike_window = 1;
  const std::string message = config.Validate().Joined();
  for (const char* key : {"on_nonfinite", "spike_factor", "spike_window"})
    EXPECT_THAT(message, HasSubstr(key));
  config = AnomalyConfig();
  config.on_spike = AnomalyAction::kRollback;
  config.rollback_steps = config.max_skipped_in_a_row;
  EXPECT_THAT(config.Validate().ToStatus(), Says("rollback_steps"));
}

}  // namespace
}  // namespace anyorder
