#include "core/train/run/best_evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace anyorder {
namespace {

HeldOutMetrics Evaluation(double loss, double accuracy) {
  return {.loss = loss, .means = {{"loss_task", 9.0}, {"task_accuracy", accuracy}}};
}

TEST(BestEvaluationTest, IsTheLowestLossOrTheHighestScoreAndOfEqualOnesTheFirst) {
  BestEvaluation by_loss({.metric = "loss", .patience = 2});
  BestEvaluation by_accuracy({.metric = "task_accuracy", .patience = 2});
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
  EXPECT_EQ(by_loss.Description(), "no lower loss than 1.0000 after step 20 in 2 evaluations");
  EXPECT_EQ(by_accuracy.state().step, 30);
  EXPECT_FALSE(by_accuracy.IsOver());
  EXPECT_EQ(by_accuracy.Description(),
            "no higher task_accuracy than 0.7500 after step 30 in 1 evaluation");
}

TEST(BestEvaluationTest, TheNameOfAFigureSaysItsDirection) {
  for (const char* loss : {"loss", "loss_task", "loss_backward"}) EXPECT_TRUE(LowerIsBetter(loss));
  for (const char* score : {"task_accuracy", "task_f1", "pearson", "lossless"})
    EXPECT_FALSE(LowerIsBetter(score));
}

TEST(BestEvaluationTest, WithoutAFiniteValueThereIsNoImprovement) {
  BestEvaluation best({.patience = 2});
  best.Add(1, Evaluation(std::nan(""), 0));
  EXPECT_EQ(best.state().step, -1);
  EXPECT_EQ(best.Description(), "no value of loss in 1 evaluation");
  best.Add(2, Evaluation(3, 0));
  EXPECT_EQ(best.state().step, 2);
  best.Add(3, Evaluation(-std::numeric_limits<double>::infinity(), 0));
  best.Add(4, Evaluation(std::nan(""), 0));
  EXPECT_TRUE(best.IsOver());
  EXPECT_EQ(best.state().step, 2);
  BestEvaluation absent({.metric = "task_f1", .patience = 1});
  absent.Add(1, Evaluation(3, 0.5));
  EXPECT_TRUE(absent.IsOver());
  EXPECT_EQ(absent.state().step, -1);
}

TEST(BestEvaluationTest, AnotherMetricBeginsAnew) {
  const EvalConfig by_loss = {.patience = 1};
  BestEvaluation best(by_loss);
  best.Add(1, Evaluation(3, 0.5));
  best.Add(2, Evaluation(3, 0.5));
  BestEvaluation same(by_loss);
  same.Restore(best.state());
  EXPECT_TRUE(same.IsOver());
  BestEvaluation other({.metric = "task_accuracy", .patience = 1});
  other.Restore(best.state());
  EXPECT_FALSE(other.IsOver());
  EXPECT_EQ(other.state().step, -1);
}

}  // namespace
}  // namespace anyorder
