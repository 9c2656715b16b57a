#include "core/train/evaluation/loss_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "core/config/task_config.h"

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
    for (const double one : sample) deviation += one - mean;
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

// A lane without divisor (an example without label) is in no mean of the whole, whatever its
// targets cost.
TEST(LossSumsTest, LaneWithoutDivisorIsInNoMean) {
  BatchShape shape = {.batch_size = 2,
                      .content_rows = 2,
                      .targets = 2,
                      .content_readout = true,
                      .own_divisor = true};
  Batch batch(shape);
  batch.weights.assign(4, 0.25f);
  batch.divisors = {1.0, 0.0};
  const std::vector<float> losses = {2.0f, 4.0f, 8.0f, 16.0f};
  SplitLosses all = SampleLosses(batch, losses, 0, 0);
  EXPECT_DOUBLE_EQ(all.total().mean(), 1.5);
  all.Add(SampleLosses(batch, losses, 1, 0));
  EXPECT_DOUBLE_EQ(all.total().mean(), 1.5);
  EXPECT_EQ(all.total().samples, 1);
}

// Given B-X I-X, O, B-X; predicted B-X I-X, B-X, O: one of two entities each. A word without a tag
// is in none of them.
TEST(LossSumsTest, EntitiesAreThoseOfTheWordsWithTags) {
  BatchShape shape;
  shape.batch_size = 1;
  shape.content_rows = shape.task_rows = 6;
  shape.has_tags = true;
  Batch batch(shape);
  batch.task_valid = {1, 0, 1, 1, 1, 1};
  batch.task_tags = {1, kNoTag, 2, 0, kUnknownTag, 1};
  TaskResult result;
  result.tags = {1, 2, 1, 1, 0};
  SplitLosses sums;
  AddEntities(batch, 0, result, {"O", "B-X", "I-X"}, sums);
  EXPECT_EQ(sums.f1_sum, 2);
  EXPECT_EQ(sums.f1_weight, 4);
}

// Two lanes of four entries, one of them padding; the second loss has double weights.
TEST(LossSumsTest, LossesThatAreToldApartAreSummedApart) {
  BatchShape shape = {.batch_size = 2,
                      .content_rows = 4,
                      .targets = 4,
                      .own_divisor = true,
                      .loss_names = {"first", "second"}};
  Batch batch(shape);
  batch.loss_ids = {0, 1, 1, 0, 1, 0, 1, 0};
  batch.weights = {1, 2, 2, 0, 2, 1, 2, 1};
  batch.divisors = {2, 2};
  const std::vector<float> losses = {1, 2, 3, 100, 4, 5, 6, 7};
  SplitLosses sums;
  for (int64_t b : {0, 1}) sums.Add(SampleLosses(batch, losses, b, 0));
  EXPECT_EQ(sums.losses[0].targets, 3);
  EXPECT_DOUBLE_EQ(sums.losses[0].mean(), (1 + 5 + 7) / 3.0);
  EXPECT_DOUBLE_EQ(sums.losses[1].weight, 8);
  EXPECT_DOUBLE_EQ(sums.losses[1].mean(), (2 + 3 + 4 + 6) / 4.0);
  EXPECT_EQ(sums.losses[1].samples, 2);
  EXPECT_EQ(sums.losses[2].targets, 0);
  EXPECT_DOUBLE_EQ(sums.total().mean(), (13 + 2 * 15) / 4.0);
}

TEST(ScoreSumsTest, CorrelationIsThatOfTheDeviations) {
  const std::vector<double> predicted = {0.5, 2, 3.5, 1, 4}, given = {1, 2, 5, 0, 3};
  double products = 0, first = 0, second = 0;
  ScoreSums sums;
  EXPECT_TRUE(std::isnan(sums.correlation()));
  for (size_t i = 0; i < given.size(); ++i) {
    const double p = predicted[i] - 2.2, g = given[i] - 2.2;  // the means
    products += p * g;
    first += p * p;
    second += g * g;
    ScoreSums one;
    one.AddPair(predicted[i], given[i]);
    EXPECT_TRUE(std::isnan(one.correlation()));
    sums.Add(one);
  }
  EXPECT_NEAR(sums.correlation(), products / std::sqrt(first * second), 1e-14);
}

}  // namespace
}  // namespace anyorder
