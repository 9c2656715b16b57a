// Held-out examples whose labels mean something else than those of the training data.

#include "core/train/evaluation/periodic_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "tests/core/train/small_gpt.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/example_files.h"

namespace anyorder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RunConfig Classifier(const std::string& held_out) {
  RunConfig config = SmallClassifier(1, 32, 2);
  config.objective.task = ExampleTask::kEntailment;
  config.train.global_batch_size = 2;
  config.data.shards = "training";
  config.eval.shards = held_out;
  config.eval.every = 1;
  config.eval.batches = 1;
  config.Resolve();
  return config;
}

TEST(PeriodicEvaluatorTest, ClassesMustHaveTheNumbersOfTheTrainingData) {
  const std::string folder = data::MakeTestDirectory("held_out");
  data::TestDataset dataset;
  dataset.Write(folder, data::TestStream::Random(200, dataset.vocab_size, 1));
  data::TestExamples examples = data::TestExamples::Pairs(200);
  examples.AddTo(folder);
  data::DatasetIndex training = *data::ReadDatasetIndex(folder);
  const RunConfig config = Classifier(folder);
  EXPECT_TRUE(OpenHeldOutText(config, training).ok()) << OpenHeldOutText(config, training).status();

  training.examples->classes = {"maybe", "yes"};
  const absl::Status status = OpenHeldOutText(config, training).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("eval.shards '" + folder + "' numbers its classes differently from"),
            HasSubstr("data.shards 'training'; prepare it with"), HasSubstr("--labels-from")));
  // The training data may be plain text by now, in which case there is nothing to compare.
  training.examples.reset();
  EXPECT_TRUE(OpenHeldOutText(config, training).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace anyorder
