// Whole runs that keep an average of their weights (optimizer.ema_decay): what is saved of it, what
// evaluates it, and where it begins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "tests/core/train/trainer_fixture.h"
#include "tests/testing/status_matchers.h"

namespace anyorder {

namespace {

using ::testing::HasSubstr;

constexpr double kEpsilon = 0x1p-24;  // rounding of one fp32 operation, relative

class AverageRunsTest : public TrainerTest {
 protected:
  AverageRunsTest() {
    config_.train.steps = 6;
    config_.optimizer.ema_decay = 0.35;  // above 0.3125, the decay of the fifth update
  }
  bool HasTensor(int ranks, int64_t step) const {
    return HasAverage(OpenCheckpoint(ranks, step).value());
  }
  // Held-out loss of step 6, of text as the run's own evaluations read it.
  double HeldOutLoss(WeightChoice choice) const {
    return TrainerTest::HeldOutLoss(*kernels::MakeCpuBackend({1}).value(), choice,
                                    PeriodicEvaluatorOptions(config_));
  }
  // `average` is d before + (1 - d) weights, but for three roundings in fp32.
  static void ExpectAveraged(const std::vector<float>& average, const std::vector<float>& before,
                             const std::vector<float>& weights, double decay) {
    ASSERT_EQ(average.size(), weights.size());
    for (size_t i = 0; i < average.size(); ++i) {
      const double old_part = decay * before[i], new_part = (1 - decay) * weights[i];
      ASSERT_NEAR(average[i], old_part + new_part,
                  3 * kEpsilon * (std::abs(old_part) + std::abs(new_part)))
          << i;
    }
  }
};

// Stopped after every step: each checkpoint's average follows from the one before and its weights.
TEST_F(AverageRunsTest, EachCheckpointHasTheAverageOfItsWeights) {
  run_name_ = "steps";
  std::vector<float> before;
  for (int64_t step = 1; step < 6; ++step) {
    SCOPED_TRACE(step);
    Train(1 + static_cast<int>(step % 3), Fault{Poison::kNone, 0, 1, /*stop=*/true});
    const std::vector<float> average = Tensor<float>(1, step, "ema");
    const auto k = static_cast<double>(step);
    if (step > 1) {
      ExpectAveraged(average, before, Tensor<float>(1, step, "master"),
                     std::min(0.35, (1 + k) / (10 + k)));
    }
    before = average;
  }
}

TEST_F(AverageRunsTest, EvaluationsAreOfTheAverageUnlessTheWeightsAreAskedFor) {
  EvaluateHeldOut();
  ExpectAllOk(Train(1));
  const std::vector<StepMetrics> averaged = Metrics(1);
  const double loss = averaged.back().held_out->loss;
  EXPECT_EQ(loss, HeldOutLoss(WeightChoice::kAverage));
  EXPECT_NE(loss, HeldOutLoss(WeightChoice::kRaw));
  const std::string digest = Digest(1, 6);
  config_.eval.use_ema = false;
  ExpectAllOk(TrainAnew(1));
  EXPECT_EQ(Metrics(1).back().held_out->loss, HeldOutLoss(WeightChoice::kRaw));
  EXPECT_EQ(Digest(1, 6), digest);
  for (size_t i = 0; i < averaged.size(); ++i) EXPECT_EQ(Metrics(1)[i].loss, averaged[i].loss);
}

// A run whose weights are the average, because it begins with them and learns nothing, has its
// numbers.
TEST_F(AverageRunsTest, AnotherRunBeginsWithTheAverage) {
  EvaluateHeldOut();
  ExpectAllOk(Train(1));
  const std::vector<float> average = Tensor<float>(1, 6, "ema");
  const double loss = Metrics(1).back().held_out->loss;
  config_.train.init_from = RunDir(1);
  config_.train.steps = 1;
  config_.optimizer.warmup_steps = 1;  // at rate 0
  config_.optimizer.ema_decay = 0;
  run_name_ = "next";
  ::testing::internal::CaptureStderr();
  ExpectAllOk(Train(1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("beginning with averaged weights of "));
  EXPECT_EQ(Tensor<float>(1, 1, "master"), average);
  EXPECT_EQ(Metrics(1).back().held_out->loss, loss);
  // An average of its own begins there, too.
  config_.optimizer.ema_decay = 0.35;
  ExpectAllOk(TrainAnew(2));
  ExpectAveraged(Tensor<float>(2, 1, "ema"), average, average, 2.0 / 11);
}

// A checkpoint of a run before it kept an average, as an older version wrote it: the average begins
// with its weights, and the decay's updates are the run's. As the launcher does it with
// --allow-schedule-change.
TEST_F(AverageRunsTest, AnAverageMayBeSwitchedOnAndOffLater) {
  run_name_ = "later";
  const auto change = [this](double decay) {
    config_.optimizer.ema_decay = decay;
    const std::vector<absl::Status> refused = Train(1);
    EXPECT_THAT(refused[0], Says(absl::StrCat("cannot resume with optimizer.ema_decay = ", decay)));
    Ledger ledger = Ledger::Open(RunDirectory(RunDir(1)).ledger).value();
    ASSERT_TRUE(ledger.Append(ledger::Schedule{attempt_, config_.IdentityDigest(), "ema"}).ok());
  };
  config_.optimizer.ema_decay = 0;
  Train(1, Fault{Poison::kNone, 0, 3, /*stop=*/true});
  EXPECT_FALSE(HasTensor(1, 3));
  const std::vector<float> start = Tensor<float>(1, 3, "master");
  change(0.9);
  Train(2, Fault{Poison::kNone, 0, 1, /*stop=*/true});
  ExpectAveraged(Tensor<float>(2, 4, "ema"), start, Tensor<float>(2, 4, "master"), 5.0 / 14);
  change(0);
  ExpectAllOk(Train(3));
  EXPECT_FALSE(HasTensor(3, 6));
  run_name_ = "never";
  ExpectAllOk(Train(1));
  const std::string digest = Digest(1, 6);
  run_name_ = "later";
  EXPECT_EQ(Digest(3, 6), digest);
}

}  // namespace

}  // namespace anyorder
