// Predictions in the dataset's order, whatever is computed at once.

#include "core/train/evaluation/example_predictor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/core/network/model_testing.h"
#include "tests/core/train/small_gpt.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/example_files.h"

namespace anyorder {
namespace {

using Probabilities = std::vector<std::vector<double>>;

class ExamplePredictorTest : public data::TextFolderTest {
 protected:
  static constexpr int64_t kVocabulary = 1000;

  ExamplePredictorTest() : TextFolderTest(data::TestStream::Random(200, kVocabulary, 1)) {
    config_ = SmallClassifier(1, 32, 2);
    config_.objective.task = ExampleTask::kEntailment;
    config_.Resolve();
  }

  Probabilities Predict(const data::TestExamples& examples, int64_t batch_size) const {
    examples.AddTo(folder_);
    const auto dataset = *data::Dataset::Open(folder_);
    const auto backend = *kernels::MakeCpuBackend({1});
    const auto weights = testing::InitialParameters(config_.model, kVocabulary, 5);
    const auto predictor = *ExamplePredictor::Create(config_, *dataset, batch_size, *backend);
    Probabilities all;
    while (all.size() < examples.examples.size()) {
      const std::vector<ExamplePrediction> some =
          *predictor->Predict(std::ssize(all), test::ViewOf(weights));
      for (const ExamplePrediction& one : some) {
        EXPECT_EQ(one.example, std::ssize(all));
        all.push_back(ProbabilitiesOf(one.result.logits));
      }
    }
    return all;
  }

  RunConfig config_;
};

TEST_F(ExamplePredictorTest, DoesNotDependOnWhatIsComputedAtOnce) {
  data::TestExamples examples = data::TestExamples::Pairs(200);
  examples.labels[1] = -1;  // not known
  const Probabilities one = Predict(examples, 1);
  ASSERT_EQ(one.size(), examples.examples.size());
  const Probabilities seven = Predict(examples, 7);  // the last ones are fewer
  ASSERT_EQ(seven.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].size(), 2);
    EXPECT_NEAR(one[i][0] + one[i][1], 1, 1e-15);
    for (size_t c = 0; c < 2; ++c) EXPECT_NEAR(one[i][c], seven[i][c], 1e-5);
  }
  EXPECT_NE(one[0], one[1]);
}

TEST_F(ExamplePredictorTest, ChoicesOfAnExampleThatHasFewer) {
  config_.objective.task = ExampleTask::kMultipleChoice;
  config_.objective.num_classes = 3;
  config_.Resolve();
  data::TestExamples examples = {
      .task = ExampleTask::kMultipleChoice,
      .examples = {{{0, 4}, {4, 3}, {7, 5}}, {{12, 4}, {16, 3}, {19, 5}, {24, 2}}},
      .labels = {1, -1}};
  const Probabilities found = Predict(examples, 2);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].size(), 2);
  EXPECT_EQ(found[1].size(), 3);
  for (const std::vector<double>& one : found)
    EXPECT_NEAR(std::accumulate(one.begin(), one.end(), 0.0), 1, 1e-15);
}

TEST_F(ExamplePredictorTest, OtherObjectivesAreRefused) {
  data::TestExamples::Pairs(200).AddTo(folder_);
  const auto dataset = *data::Dataset::Open(folder_);
  const auto backend = *kernels::MakeCpuBackend({1});
  const absl::Status status =
      ExamplePredictor::Create(SmallGpt(1, 32), *dataset, 1, *backend).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

}  // namespace
}  // namespace anyorder
