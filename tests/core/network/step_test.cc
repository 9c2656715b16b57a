// What training relies on: memory, determinism, independence of how lanes are grouped, and causal
// training that equals one long pass.

#include "core/network/tensors/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/network/tensors/step_context.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

constexpr double kDoubleBound = 1e-11;

class StepTest : public ::testing::Test {
 protected:
  std::unique_ptr<Objective> Make(const std::string& name) const {
    return MakeObjectiveOrDie(name, model_, sampling_);
  }

  ModelConfig model_ = SmallModel();
  SamplingConfig sampling_ = SmallSampling();
};

TEST_F(StepTest, MemoryIsTheNewestOfOldStatesAndReusedInputs) {
  model_.dropout = 0.25;
  const std::unique_ptr<Objective> objective = Make("permutation_lm");
  const Batch batch = RandomBatch(*objective, sampling_, kSmallVocab, {2, 9}, {false, true}, 5);
  ModelRunner runner(model_, kSmallVocab, batch.shape);
  const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 41);
  const std::vector<double> memory = RandomVector(runner.memory_size(), 42);
  const uint64_t seed = 43;
  const ModelRunner::Result result = runner.Run(batch, weights, memory, true, seed);

  const int64_t dim = model_.model_dim;
  const int64_t length = model_.mem_len;
  const int64_t fresh = sampling_.reuse_len;
  const int64_t kept = length - fresh;
  const int64_t table = runner.layout().Find("transformer.word_embedding.weight").offset;
  const kernels::Dropout dropout = kernels::MakeDropout(seed, 5, kEmbeddingSite, model_.dropout);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
      const int64_t first = (b * model_.num_layers + layer) * length * dim;
      for (int64_t i = 0; i < kept * dim; ++i)
        ASSERT_EQ(result.memory[first + i], memory[first + fresh * dim + i]) << "layer " << layer;
    }
    // Layer 0 remembers the embeddings after dropout.
    const int64_t first = b * model_.num_layers * length * dim + kept * dim;
    for (int64_t slot = 0; slot < fresh; ++slot) {
      const int64_t row = b * sampling_.seq_len + slot;
      for (int64_t c = 0; c < dim; ++c) {
        const bool keep =
            kernels::KeepElement(dropout, static_cast<uint32_t>(batch.row_ids[row]), c);
        const double expected =
            keep ? weights[table + batch.tokens[row] * dim + c] * dropout.scale() : 0.0;
        ASSERT_NEAR(result.memory[first + slot * dim + c], expected, 1e-15) << "slot " << slot;
      }
    }
  }
}

TEST_F(StepTest, SlotsThatHoldNoStateYetAreHidden) {
  for (const char* const name : {"permutation_lm", "causal_lm"}) {
    const std::unique_ptr<Objective> objective = Make(name);
    const Batch batch = RandomBatch(*objective, sampling_, kSmallVocab, {2}, {false}, 0);
    ModelRunner runner(model_, kSmallVocab, batch.shape);
    const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 51);
    const double empty = runner.Run(batch, weights, {}, false).step.loss_sum;
    const std::vector<double> rubbish = RandomVector(runner.memory_size(), 52);
    EXPECT_EQ(runner.Run(batch, weights, rubbish, false).step.loss_sum, empty) << name;
  }
}

TEST_F(StepTest, TheSameArgumentsGiveTheSameBits) {
  SetKeys("dropout = 0.125, attention_dropout = 0.125", model_);
  for (const char* const name : {"permutation_lm", "causal_lm"}) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Objective> objective = Make(name);
    const Batch batch = RandomBatch(*objective, sampling_, kSmallVocab, {2, 9}, {false, true}, 5);
    ModelRunner first(model_, kSmallVocab, batch.shape);
    ModelRunner second(model_, kSmallVocab, batch.shape);
    const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 61);
    const std::vector<double> memory = RandomVector(first.memory_size(), 62);
    const ModelRunner::Result a = first.Run(batch, weights, memory, true);
    // The second network has run something else before: nothing may be left of it.
    const Batch other = RandomBatch(*objective, sampling_, kSmallVocab, {1, 3}, {true, true}, 6);
    second.Run(other, weights, memory, true);
    const ModelRunner::Result b = second.Run(batch, weights, memory, true);
    ExpectSameBits(a, b);
    const ModelRunner::Result c = second.Run(batch, weights, memory, true, /*dropout_seed=*/8);
    EXPECT_NE(a.losses, c.losses) << "dropout does not depend on the seed";
  }
}

// Lanes do not know of one another, but for the position table's dropout mask, which belongs to the
// microbatch.
TEST_F(StepTest, SumsDoNotDependOnHowLanesAreGrouped) {
  SetKeys("dropout = 0.25, attention_dropout = 0.25", model_);
  const std::vector<int64_t> lanes = {2, 5, 7, 9};
  const std::vector<bool> backward = {false, false, true, true};
  for (const char* const name : {"permutation_lm", "causal_lm"}) {
    const std::unique_ptr<Objective> objective = Make(name);
    const Batch together = RandomBatch(*objective, sampling_, kSmallVocab, lanes, backward, 5);
    ModelRunner all(model_, kSmallVocab, together.shape);
    const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 71);
    const std::vector<double> memory = RandomVector(all.memory_size(), 72);
    const ModelRunner::Result expected = all.Run(together, weights, memory, true);

    ModelRunner one(model_, kSmallVocab, objective->Shape(1));
    const int64_t lane_memory = one.memory_size();
    double loss = 0;
    std::vector<double> gradients(weights.size(), 0.0);
    for (size_t b = 0; b < lanes.size(); ++b) {
      Batch alone = RandomBatch(*objective, sampling_, kSmallVocab, {lanes[b]}, {backward[b]}, 5);
      alone.lanes[0] = lanes[0];  // the same mask of the position table
      const auto begin = memory.begin() + static_cast<int64_t>(b) * lane_memory;
      const ModelRunner::Result result =
          one.Run(alone, weights, std::vector<double>(begin, begin + lane_memory), true);
      loss += result.step.loss_sum;
      for (size_t i = 0; i < gradients.size(); ++i) gradients[i] += result.gradients[i];
      EXPECT_TRUE(std::equal(result.memory.begin(), result.memory.end(),
                             expected.memory.begin() + static_cast<int64_t>(b) * lane_memory))
          << name << " lane " << b;
    }
    EXPECT_NEAR(loss, expected.step.loss_sum, kDoubleBound * loss) << name;
    EXPECT_LT(Distance(gradients, expected.gradients), kDoubleBound * Norm(gradients)) << name;
  }
}

TEST_F(StepTest, LossesThatAreToldApartSumToTheLossAndChangeNoGradient) {
  const std::unique_ptr<Objective> objective = Make("permutation_lm");
  const Batch plain = RandomBatch(*objective, sampling_, kSmallVocab, {2, 9}, {false, true}, 5);
  Batch batch = plain;
  batch.shape.loss_names = {"first", "second"};
  batch.loss_ids.resize(plain.weights.size());
  for (size_t i = 0; i < batch.loss_ids.size(); ++i)
    batch.loss_ids[i] = static_cast<int32_t>(i % 3 == 1);
  const ModelRunner::Result result = RunOnce(model_, batch, true);
  const ModelRunner::Result unnamed = RunOnce(model_, plain, true);
  EXPECT_EQ(result.gradients, unnamed.gradients);
  EXPECT_EQ(result.step.loss_sum, unnamed.step.loss_sum);
  double sums[2] = {}, weight[2] = {};
  for (size_t i = 0; i < batch.weights.size(); ++i) {
    sums[batch.loss_ids[i]] += static_cast<double>(batch.weights[i]) * result.losses[i];
    weight[batch.loss_ids[i]] += static_cast<double>(batch.weights[i]);
  }
  EXPECT_TRUE(unnamed.step.sums.empty());
  ASSERT_EQ(result.step.sums.size(), 2u);
  EXPECT_EQ(result.step.sums[1].name, "loss_second");
  for (const int id : {0, 1}) {
    ASSERT_GT(weight[id], 0);
    EXPECT_EQ(result.step.sums[id].weight, weight[id]);
    // The reported losses are rounded to float.
    EXPECT_NEAR(result.step.sums[id].sum, sums[id], 1e-6 * sums[id]);
  }
  EXPECT_NEAR(result.step.sums[0].sum + result.step.sums[1].sum, result.step.loss_sum,
              kDoubleBound * result.step.loss_sum);
}

class SegmentsTest : public StepTest {
 protected:
  // Of model_, whatever its memory.
  void ExpectOneLongPass() {
    constexpr int64_t kSegments = 3;
    SamplingConfig long_sampling = sampling_;
    long_sampling.seq_len = kSegments * sampling_.seq_len;
    ModelConfig long_model = model_;
    long_model.mem_len = 0;
    const TextSample text =
        RandomSample(long_sampling, SampleKind::kContiguous, kSmallVocab, 4, 0, false);
    const Batch long_batch =
        BuildBatch(*MakeObjectiveOrDie("causal_lm", long_model, long_sampling), {text});
    const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 81);
    const double expected = RunOnce(long_model, long_batch, weights).step.loss_sum;

    model_.mem_len = (kSegments - 1) * sampling_.seq_len;
    const std::unique_ptr<Objective> objective = Make("causal_lm");
    ModelRunner runner(model_, kSmallVocab, objective->Shape(1));
    std::vector<double> memory;
    double loss = 0;
    for (int64_t step = 0; step < kSegments; ++step) {
      const auto begin = step * sampling_.seq_len;
      TextSample segment = text;
      segment.step = step;
      segment.tokens.assign(text.tokens.begin() + begin,
                            text.tokens.begin() + begin + sampling_.seq_len);
      segment.next_tokens.assign(text.next_tokens.begin() + begin,
                                 text.next_tokens.begin() + begin + sampling_.seq_len);
      const ModelRunner::Result result =
          runner.Run(BuildBatch(*objective, {segment}), weights, memory, false);
      loss += result.step.loss_sum;
      memory = result.memory;
    }
    EXPECT_NEAR(loss, expected, kDoubleBound * expected);
  }
};

TEST_F(SegmentsTest, CausalSegmentsWithFullMemoryEqualOneLongPass) { ExpectOneLongPass(); }

// Some memory is farther than the distances that have a bucket of their own.
TEST_F(SegmentsTest, BiasByDistanceReachesIntoMemory) {
  model_.positions = Positions::kNone;
  for (const PositionBias bias : {PositionBias::kT5, PositionBias::kT5Causal}) {
    model_.position_bias = bias;
    model_.position_bias_max_distance = 20;
    ExpectOneLongPass();
  }
}

TEST_F(StepTest, CreateRefusesWhatCannotRun) {
  const BatchShape shape = Make("permutation_lm")->Shape(2);
  ModelConfig too_many_heads = model_, other_memory = model_;
  too_many_heads.num_heads = 3;
  other_memory.mem_len = 1;
  for (const ModelConfig& wrong : {too_many_heads, other_memory}) {
    EXPECT_EQ(Transformer::Create(wrong, kSmallVocab, shape, SharedReference()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace anyorder::testing
