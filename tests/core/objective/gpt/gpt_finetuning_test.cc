#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "core/objective/finetuning.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

constexpr ExampleTask kTasks[] = {ExampleTask::kClassification, ExampleTask::kEntailment,
                                  ExampleTask::kSimilarity, ExampleTask::kMultipleChoice};

ModelConfig Model(ExampleTask task, double lm_weight = 0.5) {
  ModelConfig model = SmallLearnedModel(40);
  model.softmax_bias = false;
  model.task = {task, 3, lm_weight, 0.25};
  return model;
}

TextSample ExampleSample(int64_t lane) {
  return RandomSample(OneWaySampling(), SampleKind::kExamples, kSmallVocab, lane, 0, false);
}

// Evaluation: no dropout.
StepResult Evaluate(const ModelConfig& model, int64_t seq_len,
                    const std::vector<TextSample>& lanes) {
  const auto objective = MakeObjectiveOrDie("gpt_finetuning", model, OneWaySampling(seq_len));
  return RunOnce(model, BuildBatch(*objective, lanes), InitialWeights(model, kSmallVocab, 3)).step;
}

// The sequences that the paper makes of an example.
std::vector<std::vector<int32_t>> SequencesOf(ExampleTask task, const TextSample& sample) {
  const auto lay_out = [&](const std::vector<size_t>& parts) {
    std::vector<const std::vector<int32_t>*> texts;
    for (const size_t part : parts) texts.push_back(&sample.parts[part]);
    return LayOut(kGptLayout.Of(std::ssize(texts)), sample.vocabulary, texts, 16).tokens;
  };
  if (task == ExampleTask::kClassification) {
    std::vector<size_t> all(sample.parts.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return {lay_out(all)};
  }
  std::vector<std::vector<int32_t>> sequences = {lay_out({0, 1})};
  if (task == ExampleTask::kSimilarity) sequences.push_back(lay_out({1, 0}));
  for (size_t i = 2; i < sample.parts.size() && task == ExampleTask::kMultipleChoice; ++i)
    sequences.push_back(lay_out({0, i}));
  return sequences;
}

// A loss is a sum of a few hundred terms, each off by at most half an ulp of the largest.
double Rounding(double loss) {
  return 1024 * std::numeric_limits<double>::epsilon() * std::abs(loss);
}

// The rule from the paper: each token sees those of its own sequence up to itself.
TEST(GptFineTuningTest, ATokenSeesThePastOfItsOwnSequenceAndPaddingSeesAndIsNothing) {
  for (const ExampleTask task : kTasks) {
    const auto objective = MakeObjectiveOrDie("gpt_finetuning", Model(task), OneWaySampling());
    const TextSample sample = ExampleSample(3);
    const Batch batch = BuildBatch(*objective, {sample});
    const auto sequences = SequencesOf(task, sample);
    const auto is_token = [&](int64_t slot) {
      const auto sequence = static_cast<size_t>(slot / 16);
      return sequence < sequences.size() &&
             slot % 16 < static_cast<int64_t>(sequences[sequence].size());
    };
    SCOPED_TRACE(EnumName(task));
    ExpectSees(batch, [&](int64_t row, int64_t key) {
      return is_token(row) && is_token(key) && row / 16 == key / 16 && key % 16 <= row % 16;
    });
    for (int64_t row = 0; row < batch.shape.content_rows; ++row) {
      if (!is_token(row)) continue;
      EXPECT_EQ(batch.row_pos[row], row % 16);
      EXPECT_EQ(batch.tokens[row], sequences[row / 16][row % 16]);
    }
  }
}

TEST(GptFineTuningTest, TheHeadReadsTheLastTokenAndTheLanguageModelAllButTheFirst) {
  for (const ExampleTask task : kTasks) {
    const auto objective =
        MakeObjectiveOrDie("gpt_finetuning", Model(task, 0.75), OneWaySampling());
    const TextSample sample = ExampleSample(4);
    const Batch batch = BuildBatch(*objective, {sample});
    const auto sequences = SequencesOf(task, sample);
    EXPECT_EQ(std::set<int32_t>(batch.task_rows.begin(), batch.task_rows.end()).size(),
              batch.task_rows.size());
    double total = 0;
    for (size_t r = 0; r < sequences.size(); ++r) {
      const auto first = static_cast<int64_t>(16 * r);
      EXPECT_EQ(batch.tokens[batch.task_rows[r]], 3);
      EXPECT_EQ(batch.task_rows[r], first + static_cast<int64_t>(sequences[r].size()) - 1);
      double weight = 0;
      for (int64_t i = 0; i < 16; ++i) {
        weight += batch.weights[first + i];
        EXPECT_EQ(batch.weights[first + i] > 0, i + 1 < static_cast<int64_t>(sequences[r].size()));
        if (batch.weights[first + i] > 0) {
          EXPECT_EQ(batch.labels[first + i], sequences[r][i + 1]);
        }
      }
      EXPECT_NEAR(weight * static_cast<double>(sequences.size()), 0.75, 1e-5);
      total += weight;
    }
    EXPECT_NEAR(total, 0.75, 1e-5);
    EXPECT_EQ(batch.Divisor(), 1.0);
    EXPECT_EQ(batch.task_labels[0], sample.label);
    EXPECT_EQ(std::count(batch.task_valid.begin(), batch.task_valid.end(), 1),
              std::ssize(sequences));
  }
}

TEST(GptFineTuningTest, PaddingChangesNoLoss) {
  for (const ExampleTask task : kTasks) {
    TextSample sample = ExampleSample(2);
    const size_t most = task == ExampleTask::kClassification ? 2 : 6;  // of up to four texts
    for (std::vector<int32_t>& part : sample.parts) part.resize(std::min(part.size(), most));
    const StepResult tight = Evaluate(Model(task), 16, {sample});
    const StepResult loose = Evaluate(Model(task), 40, {sample});
    EXPECT_NEAR(tight.loss_sum, loose.loss_sum, Rounding(tight.loss_sum)) << EnumName(task);
    EXPECT_EQ(SumNamed("task_accuracy", tight.sums).sum, SumNamed("task_accuracy", loose.sums).sum);

    // What stands in the padding: the same bits.
    const auto objective = MakeObjectiveOrDie("gpt_finetuning", Model(task), OneWaySampling());
    Batch batch = BuildBatch(*objective, {sample});
    const ModelRunner::Result before = RunOnce(Model(task), batch, true);
    for (int64_t row = 0; row < batch.shape.content_rows; ++row) {
      if (batch.row_doc[row] == kernels::kDocPad) batch.tokens[row] = 9;
    }
    const ModelRunner::Result after = RunOnce(Model(task), batch, true);
    EXPECT_EQ(before.step.loss_sum, after.step.loss_sum);
    EXPECT_EQ(before.gradients, after.gradients);
  }
}

TEST(GptFineTuningTest, LanesDoNotNoticeOneAnother) {
  for (const ExampleTask task : kTasks) {
    const double first = Evaluate(Model(task), 16, {ExampleSample(2)}).loss_sum;
    const double second = Evaluate(Model(task), 16, {ExampleSample(5)}).loss_sum;
    const double both = Evaluate(Model(task), 16, {ExampleSample(2), ExampleSample(5)}).loss_sum;
    EXPECT_NEAR(both, first + second, Rounding(both)) << EnumName(task);
  }
}

TEST(GptFineTuningTest, SimilarityIsSymmetric) {
  TextSample sample = ExampleSample(2);
  TextSample swapped = sample;
  std::swap(swapped.parts[0], swapped.parts[1]);
  const double loss = Evaluate(Model(ExampleTask::kSimilarity), 16, {sample}).loss_sum;
  EXPECT_NEAR(loss, Evaluate(Model(ExampleTask::kSimilarity), 16, {swapped}).loss_sum,
              Rounding(loss));
  // Entailment is not: the test above could notice.
  EXPECT_GT(std::abs(Evaluate(Model(ExampleTask::kEntailment), 16, {sample}).loss_sum -
                     Evaluate(Model(ExampleTask::kEntailment), 16, {swapped}).loss_sum),
            1e-3);
}

TEST(GptFineTuningTest, ChoicesAreASoftmaxOverTheExamplesOwn) {
  const ModelConfig model = Model(ExampleTask::kMultipleChoice, 0.0);
  for (const int64_t lane : {2, 3}) {
    TextSample sample = ExampleSample(lane);
    double probability = 0;
    int right = 0;
    for (size_t choice = 0; choice + 1 < sample.parts.size(); ++choice) {
      sample.label = static_cast<int32_t>(choice);
      const StepResult result = Evaluate(model, 16, {sample});
      probability += std::exp(-SumNamed("loss_task", result.sums).sum);
      right += static_cast<int>(SumNamed("task_accuracy", result.sums).sum);
    }
    EXPECT_NEAR(probability, 1, 1e-12);
    EXPECT_EQ(right, 1);
  }
}

TEST(GptFineTuningTest, AnExampleWithoutLabelTeachesItsLanguageOnly) {
  TextSample sample = ExampleSample(2);
  sample.label = -1;
  const StepResult result = Evaluate(Model(ExampleTask::kClassification), 16, {sample});
  EXPECT_EQ(SumNamed("loss_task", result.sums).weight, 0);
  EXPECT_EQ(SumNamed("loss_task", result.sums).sum, 0);
  EXPECT_EQ(SumNamed("task_accuracy", result.sums).sum, 0);
  EXPECT_GT(SumNamed("loss_lm", result.sums).sum, 0);
}

TEST(GptFineTuningTest, SettingsThatCannotBeUsedAreRefused) {
  const ModelConfig model = Model(ExampleTask::kClassification);
  ExpectRefusals(
      "gpt_finetuning", model, OneWaySampling(),
      {{[](auto& m, auto&) { m.task.num_classes = 0; }, "objective.num_classes is 0"},
       {[](auto& m, auto&) { m = Model(ExampleTask::kGeneration); },
        "objective.task is generation"},
       {[](auto& m, auto&) { m.task.task = ExampleTask::kSpans; }, "do not see what follows them"},
       {[](auto&, auto& s) { s = OneWaySampling(4); }, "sampling.seq_len is 4"},
       {[](auto&, auto& s) { s = OneWaySampling(41); }, "model.max_positions is 40"}});
  ExpectRefusals("gpt", model, OneWaySampling(), {{[](auto&, auto&) {}, "gpt has none"}});
}

}  // namespace
}  // namespace anyorder::testing
