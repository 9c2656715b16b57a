// The loss, its gradient, folds, and training on queries whose best document is known.

#include "core/ranking/kernel_ranker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/testing/finite_difference.h"
#include "tests/testing/status_matchers.h"

namespace anyorder {
namespace {

constexpr int64_t kQueries = 12;
constexpr int64_t kDocuments = 8;

class KernelRankerTest : public ::testing::Test {
 protected:
  KernelFeatures RandomFeatures() {
    KernelFeatures features;
    for (double& value : features) value = normal_(random_);
    return features;
  }
  // Grades 0 to 2 by a hidden weighing of the features.
  std::vector<RankingQuery> RandomQueries() {
    const KernelFeatures hidden = RandomFeatures();
    std::vector<RankingQuery> queries(kQueries);
    for (RankingQuery& query : queries) {
      for (int64_t n = 0; n < kDocuments; ++n) {
        query.features.push_back(RandomFeatures());
        double sum = 0;
        for (int k = 0; k < kNumKernels; ++k) sum += hidden[k] * query.features.back()[k];
        query.grades.push_back(sum > 2 ? 2 : sum > 0 ? 1 : 0);
      }
    }
    return queries;
  }
  // The mean over those `chosen` that have documents of different grades of the loss of all their
  // pairs.
  static double MeanLoss(const KernelRanker& ranker, const std::vector<RankingQuery>& queries,
                         const std::vector<int64_t>& chosen) {
    double sum = 0, count = 0;
    for (const int64_t index : chosen) {
      const RankingQuery& query = queries[static_cast<size_t>(index)];
      std::vector<DocumentPair> pairs;
      for (size_t i = 0; i < query.grades.size(); ++i)
        for (size_t j = 0; j < query.grades.size(); ++j)
          if (query.grades[i] > query.grades[j])
            pairs.emplace_back(&query.features[i], &query.features[j]);
      if (pairs.empty()) continue;
      sum += PairwiseHingeLoss(ranker, pairs, nullptr);
      ++count;
    }
    return sum / count;
  }

  std::mt19937 random_{std::random_device{}()};
  std::normal_distribution<double> normal_{0, 1};
};

TEST_F(KernelRankerTest, ScoreAndLossAreThoseOfThePaper) {
  KernelRanker ranker{.bias = 0.25};
  ranker.weights[3] = -2;
  KernelFeatures high{}, low{};
  high[3] = -0.5;
  low[0] = 9;  // of weight 0
  EXPECT_DOUBLE_EQ(ranker.Score(high), std::tanh(1.25));
  EXPECT_DOUBLE_EQ(PairwiseHingeLoss(ranker, {{&high, &low}}, nullptr),
                   1 - std::tanh(1.25) + std::tanh(0.25));
  ranker.weights[3] = -20;
  low[3] = 1;  // further apart than the margin
  RankerGradient gradient;
  EXPECT_EQ(PairwiseHingeLoss(ranker, {{&high, &low}}, &gradient), 0);
  for (const double value : gradient) EXPECT_EQ(value, 0);
}

TEST_F(KernelRankerTest, GradientIsThatOfFiniteDifferences) {
  std::vector<KernelFeatures> features;
  for (int n = 0; n < 6; ++n) features.push_back(RandomFeatures());
  const std::vector<DocumentPair> pairs = {
      {&features[0], &features[1]}, {&features[2], &features[3]}, {&features[4], &features[5]}};
  // Small enough that no pair is near the margin, where the loss has no derivative.
  std::vector<double> parameters(kNumKernels + 1);
  for (double& value : parameters) value = 0.02 * normal_(random_);
  const auto ranker = [&] {
    KernelRanker made{.bias = parameters.back()};
    std::copy_n(parameters.begin(), kNumKernels, made.weights.begin());
    return made;
  };
  RankerGradient gradient;
  PairwiseHingeLoss(ranker(), pairs, &gradient);
  test::ExpectGradient(
      absl::MakeSpan(parameters), {gradient.begin(), gradient.end()},
      [&] { return PairwiseHingeLoss(ranker(), pairs, nullptr); }, 6, "ranker");
}

TEST_F(KernelRankerTest, LearnsWhatOrdersTheDocuments) {
  const std::vector<RankingQuery> queries = RandomQueries();
  const std::vector<std::vector<int64_t>> folds = DealFolds(kQueries, 4, 3);
  const auto trained = TrainForFold(queries, folds, 0, {});
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_GT(trained->step, 0);
  EXPECT_DOUBLE_EQ(trained->validation_loss, MeanLoss(trained->ranker, queries, folds[1]));
  // Zeros say nothing and lose 1 a pair; the features of the others say how to order fold 0.
  EXPECT_LT(MeanLoss(trained->ranker, queries, folds[0]), 0.7);
  const auto again = TrainForFold(queries, folds, 0, {});
  EXPECT_EQ(again->ranker.weights, trained->ranker.weights);
  const auto other = TrainForFold(queries, folds, 0, {.seed = 2});
  EXPECT_NE(other->ranker.weights, trained->ranker.weights);
}

TEST_F(KernelRankerTest, TheQueriesOfAFoldAndGradesThatTellNothingTeachNothing) {
  std::vector<RankingQuery> queries = RandomQueries();
  const std::vector<std::vector<int64_t>> folds = DealFolds(kQueries, 4, 3);
  const auto before = TrainForFold(queries, folds, 2, {});
  for (const int64_t query : folds[2])
    for (int32_t& grade : queries[query].grades) grade = 2 - grade;
  const auto after = TrainForFold(queries, folds, 2, {});
  EXPECT_EQ(before->ranker.weights, after->ranker.weights);
  for (const int64_t query : folds[3]) queries[query].grades.assign(kDocuments, 1);
  EXPECT_THAT(TrainForFold(queries, folds, 2, {}).status(),
              Fails(absl::IsFailedPrecondition, "that stop the training"));
}

TEST_F(KernelRankerTest, FoldsShareOutAllQueries) {
  const std::vector<std::vector<int64_t>> folds = DealFolds(11, 4, 1);
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& fold : folds) {
    EXPECT_THAT(fold.size(), ::testing::AnyOf(2, 3));
    all.insert(all.end(), fold.begin(), fold.end());
  }
  EXPECT_THAT(all, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(folds, DealFolds(11, 4, 1));
  EXPECT_NE(folds, DealFolds(11, 4, 2));
}

}  // namespace
}  // namespace anyorder
