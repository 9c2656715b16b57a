#include "core/train/run/stop_budget.h"

#include <gtest/gtest.h>

namespace anyorder {
namespace {

TEST(StopBudgetTest, SaysNothingBeforeTheFirstCommit) {
  StopBudget budget;
  EXPECT_EQ(budget.Seconds(), 0);
  budget.AddStep(1000);
  EXPECT_EQ(budget.Seconds(), 0);
}

TEST(StopBudgetTest, LeavesOutOneOutlierInAHundredButNotTwo) {
  StopBudget budget;
  budget.AddCommit(2);
  for (int i = 0; i < 99; ++i) budget.AddStep(500);
  budget.AddStep(60000);
  EXPECT_EQ(budget.Seconds(), 1.5 * (0.5 + 2) + StopBudget::kEndSeconds);
  budget.AddStep(60000);
  EXPECT_EQ(budget.Seconds(), 1.5 * (60 + 2) + StopBudget::kEndSeconds);
}

}  // namespace
}  // namespace anyorder
