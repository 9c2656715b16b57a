// The network against an independent, plain XLNet, and the properties that XLNet's forward pass
// must have.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/core/network/model_testing.h"
#include "tests/core/network/plain_xlnet.h"

namespace anyorder::testing {
namespace {

// fp64 chains of a few hundred roundings each; losses are handed out in fp32.
constexpr double kForwardBound = 1e-11;
constexpr double kFloatEpsilon = 6e-8;

class ForwardTest : public ::testing::Test {
 protected:
  void Prepare(const std::vector<int64_t>& lanes, const std::vector<bool>& backward, int64_t step) {
    objective_ = MakeObjectiveOrDie("permutation_lm", model_, sampling_);
    batch_ = std::make_unique<Batch>(
        RandomBatch(*objective_, sampling_, kSmallVocab, lanes, backward, step));
    runner_ = std::make_unique<ModelRunner>(model_, kSmallVocab, batch_->shape);
    weights_ = InitialWeights(model_, kSmallVocab, 31);
    memory_ = RandomVector(runner_->memory_size(), 32);
  }
  TextSample Sample(int64_t lane, int64_t step, bool backward) const {
    return RandomSample(sampling_, SampleKind::kPairs, kSmallVocab, lane, step, backward);
  }
  ModelRunner::Result Run() { return runner_->Run(*batch_, weights_, memory_, false); }

  // The memory of lane `b` as PlainXlnet takes it.
  std::vector<Matrix> LaneMemory(const std::vector<double>& memory, int64_t b) const {
    const int64_t elements = model_.mem_len * model_.model_dim;
    std::vector<Matrix> layers;
    for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
      layers.emplace_back(model_.mem_len, model_.model_dim);
      std::copy_n(memory.begin() + (b * model_.num_layers + layer) * elements, elements,
                  layers.back().values.begin());
    }
    return layers;
  }
  void ExpectAgreesWithPlainXlnet(const std::vector<int64_t>& lanes,
                                  const std::vector<bool>& backward);

  ModelConfig model_ = SmallModel();
  SamplingConfig sampling_ = SmallSampling();
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Batch> batch_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<double> weights_;
  std::vector<double> memory_;
};

void ForwardTest::ExpectAgreesWithPlainXlnet(const std::vector<int64_t>& lanes,
                                             const std::vector<bool>& backward) {
  const int64_t step = 5;  // memory is full
  Prepare(lanes, backward, step);
  const ModelRunner::Result result = Run();
  const PlainXlnet plain(model_, kSmallVocab, weights_);
  double total = 0;
  double next_sentence = 0;
  double correct = 0;
  for (size_t b = 0; b < lanes.size(); ++b) {
    const auto lane = static_cast<int64_t>(b);
    const PlainOutput expected = plain.Run(Sample(lanes[b], step, backward[b]), sampling_.reuse_len,
                                           LaneMemory(memory_, lane));
    total = std::accumulate(expected.losses.begin(), expected.losses.end(), total);
    const auto& [no, yes] = expected.next_sentence_logits;
    const bool follows = Sample(lanes[b], step, backward[b]).b_follows_a;
    next_sentence += std::log(std::exp(no) + std::exp(yes)) - (follows ? yes : no);
    correct += follows == (yes > no) ? 1 : 0;
    for (size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[b * sampling_.num_predict + i], expected.losses[i],
                  kFloatEpsilon * expected.losses[i])
          << "lane " << b << " target " << i;
    }
    const std::vector<Matrix> memory = LaneMemory(result.memory, lane);
    for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
      EXPECT_LT(Distance(memory[layer].values, expected.memory[layer].values), kForwardBound)
          << "lane " << b << " memory of layer " << layer;
    }
  }
  EXPECT_NEAR(result.step.loss_sum, total, kForwardBound * total);
  const bool asked = model_.next_sentence_head;
  EXPECT_NEAR(SumNamed("nsp_loss", result.step.sums).sum, asked ? next_sentence : 0,
              kForwardBound * next_sentence);
  EXPECT_EQ(SumNamed("nsp_accuracy", result.step.sums).sum, asked ? correct : 0);
}

TEST_F(ForwardTest, AgreesWithPlainXlnet) {
  const struct {
    const char* name;
    const char* model;
    std::vector<int64_t> lanes;
    std::vector<bool> backward;
    bool next_sentence = false;
    const char* sampling = "";
  } kCases[] = {
      {"both directions", "", {0, 1, 2, 3}, {false, false, true, true}},
      {"next-sentence head", "", {0, 1, 2, 3, 4, 5}, {false, false, true, true, false, true}, true},
      {"shared biases and clamped distances",
       "untie_r = false, clamp_len = 6",
       {4, 5},
       {true, false}},
      {"no memory", "mem_len = 0", {6}, {false}},
      {"blockwise orders", "num_layers = 3", {7, 8}, {false, true}, false, "perm_size = 4"},
      {"memory shorter than what is new", "mem_len = 5", {9}, {true}}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    model_ = With(SmallModel(), c.model);
    model_.next_sentence_head = c.next_sentence;
    sampling_ = With(SmallSampling(), c.sampling);
    ExpectAgreesWithPlainXlnet(c.lanes, c.backward);
  }
}

// XLNet must not learn to copy: what a query predicts may depend neither on its own token nor on
// tokens later in its order, and in the first half on nothing of the second.
TEST_F(ForwardTest, NoQueryDependsOnTokensAtOrAfterItInTheOrder) {
  const int64_t half = sampling_.reuse_len;
  Prepare({10}, {false}, 5);
  const TextSample sample = Sample(10, 5, false);
  const ModelRunner::Result before = Run();
  int changed = 0;
  for (int64_t slot = 0; slot < sampling_.seq_len; ++slot) {
    if (!sample.is_masked[slot] || sample.is_functional[slot]) continue;
    const int32_t token = batch_->tokens[slot];
    batch_->tokens[slot] = token == 5 ? 6 : 5;  // labels stay
    const ModelRunner::Result after = Run();
    batch_->tokens[slot] = token;
    for (int64_t query = 0; query < sampling_.num_predict; ++query) {
      const int64_t row = batch_->readout_rows[query];
      if (batch_->weights[query] == 0.0f) continue;
      const int64_t position = batch_->row_pos[row];
      const bool same_half = (position < half) == (slot < half);
      const bool may_change =
          same_half ? sample.order[position] > sample.order[slot] : position >= half && slot < half;
      if (may_change) {
        changed += after.losses[query] != before.losses[query] ? 1 : 0;
      } else {
        EXPECT_EQ(after.losses[query], before.losses[query])
            << "the query at " << position << " sees the token at " << slot;
      }
    }
  }
  EXPECT_GT(changed, 0) << "no query depends on any target: nothing was tested";
}

TEST_F(ForwardTest, UnusedQuerySlotsChangeNothing) {
  Prepare({11}, {false}, 5);
  TextSample sample = Sample(11, 5, false);
  // One target fewer: its query slot stays empty.
  const auto target = std::find(sample.is_masked.begin(), sample.is_masked.end(), 1);
  *target = 0;
  sample.is_masked[sampling_.seq_len - 1] = 1;  // CLS, never a target
  objective_->BuildLane(sample, 0, *batch_);
  const ModelRunner::Result result = runner_->Run(*batch_, weights_, memory_, true);
  EXPECT_EQ(result.losses.back(), 0.0f);
  EXPECT_EQ(result.step.divisor, static_cast<double>(sampling_.num_predict - 1));
  const PlainXlnet plain(model_, kSmallVocab, weights_);
  const PlainOutput expected = plain.Run(sample, sampling_.reuse_len, LaneMemory(memory_, 0));
  const double total = std::accumulate(expected.losses.begin(), expected.losses.end(), 0.0);
  EXPECT_NEAR(result.step.loss_sum, total, kForwardBound * total);
  for (const double gradient : result.gradients) ASSERT_TRUE(std::isfinite(gradient));
}

}  // namespace
}  // namespace anyorder::testing
