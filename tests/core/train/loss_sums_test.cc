#include "core/train/loss_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"

namespace anyorder {
namespace {

// Clusters of unequal size: the textbook formula in two passes.
TEST(LossSumsTest, StandardErrorIsThatOfClusters) {
  RandomStream random(3, RandomPurpose::kInit, 0, 0);
  LossSums sums;
  std::vector<std::vector<double>> samples(20);
  double loss = 0;
  int64_t targets = 0;
  for (size_t g = 0; g < samples.size(); ++g) {
    LossSums sample;
    const double shift = random.Normal();
    for (size_t i = 0; i <= g % 5; ++i) {
      samples[g].push_back(5 + shift + 0.1 * random.Normal());
      sample.AddTarget(1, samples[g].back());
      loss += samples[g].back();
      ++targets;
    }
    sample.CloseSample();
    sums.Add(sample);
  }
  const double mean = loss / static_cast<double>(targets);
  double squares = 0;
  for (const std::vector<double>& sample : samples) {
    double deviation = 0;
    for (const double one : sample)
      deviation += one - mean;
    squares += deviation * deviation;
  }
  const double expected = std::sqrt(squares * 20 / 19) / static_cast<double>(targets);
  EXPECT_EQ(sums.targets, targets);
  EXPECT_EQ(sums.samples, 20);
  EXPECT_NEAR(sums.mean(), mean, 1e-13);
  EXPECT_NEAR(sums.standard_error(), expected, 1e-10);
  // Taken as independent targets they would look far surer than they are.
  EXPECT_GT(sums.standard_error(), 1.0 / std::sqrt(static_cast<double>(targets)));
}

TEST(LossSumsTest, SampleWithoutTargetsCountsForNothing) {
  LossSums empty;
  empty.CloseSample();
  EXPECT_EQ(empty.samples, 0);
  LossSums one;
  one.AddTarget(1, 2.5);
  one.CloseSample();
  one.Add(empty);
  EXPECT_EQ(one.samples, 1);
  EXPECT_DOUBLE_EQ(one.mean(), 2.5);
  EXPECT_TRUE(std::isnan(one.standard_error()));
  EXPECT_TRUE(std::isnan(empty.mean()));
}

TEST(LossSumsTest, WeightsAreTakenIntoTheMean) {
  LossSums sums;
  sums.AddTarget(2, 1);
  sums.AddTarget(1, 4);
  EXPECT_EQ(sums.targets, 2);
  EXPECT_DOUBLE_EQ(sums.mean(), 2);
}

}  // namespace
}  // namespace anyorder
