#include "core/train/run/best_evaluation.h"

#include <gtest/gtest.h>

#include <cmath>

namespace anyorder {
namespace {

HeldOutMetrics Evaluation(double loss, double accuracy) {
  return {.loss = loss, .means = {{"loss_task", 9.0}, {"task_accuracy", accuracy}}};
}

TEST(BestEvaluationTest, IsTheLowestLossOrTheHighestAccuracyAndOfEqualOnesTheFirst) {
  EvalConfig config = {.metric = EvalMetric::kLoss, .patience = 2};
  BestEvaluation by_loss(config);
  EvalConfig other = {.metric = EvalMetric::kAccuracy, .patience = 2};
  BestEvaluation by_accuracy(other);
  const double losses[] = {2.0, 1.0, 1.0, 1.5};
  const double accuracies[] = {0.5, 0.25, 0.75, 0.75};
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(by_loss.IsOver());
    by_loss.Add(10 * (i + 1), Evaluation(losses[i], accuracies[i]));
    by_accuracy.Add(10 * (i + 1), Evaluation(losses[i], accuracies[i]));
  }
  EXPECT_EQ(by_loss.state().step, 20);
  EXPECT_EQ(by_loss.state().num_later, 2);
  EXPECT_TRUE(by_loss.IsOver());
  EXPECT_EQ(by_loss.Description(), "no better loss than 1.0000 after step 20 in 2 evaluations");
  EXPECT_EQ(by_accuracy.state().step, 30);
  EXPECT_FALSE(by_accuracy.IsOver());
  config.patience = 0;
  EXPECT_FALSE(by_loss.IsOver());
}

TEST(BestEvaluationTest, WithoutAValueThereIsNoImprovement) {
  const EvalConfig config = {.patience = 2};
  BestEvaluation best(config);
  best.Add(1, Evaluation(std::nan(""), 0));
  EXPECT_EQ(best.state().step, -1);
  best.Add(2, Evaluation(3, 0));
  EXPECT_EQ(best.state().step, 2);
  best.Add(3, Evaluation(std::nan(""), 0));
  best.Add(4, Evaluation(std::nan(""), 0));
  EXPECT_TRUE(best.IsOver());
  EXPECT_EQ(best.state().step, 2);
}

TEST(BestEvaluationTest, AnotherMetricBeginsAnew) {
  const EvalConfig by_loss = {.patience = 1};
  BestEvaluation best(by_loss);
  best.Add(1, Evaluation(3, 0.5));
  best.Add(2, Evaluation(3, 0.5));
  BestEvaluation same(by_loss);
  same.Restore(best.state());
  EXPECT_TRUE(same.IsOver());
  const EvalConfig by_accuracy = {.metric = EvalMetric::kAccuracy, .patience = 1};
  BestEvaluation other(by_accuracy);
  other.Restore(best.state());
  EXPECT_FALSE(other.IsOver());
  EXPECT_EQ(other.state().step, -1);
}

}  // namespace
}  // namespace anyorder
