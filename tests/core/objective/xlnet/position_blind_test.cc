// Yang et al. 2019, appendix A.1, on the network itself: why a permutation language model needs a
// query stream. A content state says nothing of the place that is to be predicted, so that two
// orders with the same past and different targets get one distribution from it.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "core/objective/lane_frame.h"
#include "core/objective/xlnet/xlnet.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

// Of every token of the vocabulary.
using Distribution = std::vector<float>;

// Distributions of the third target of an order, after the same two, 3 and 2.
struct ThirdTarget {
  Distribution naive;        // of the content state h(x_{z < t}), that of slot 2
  Distribution two_streams;  // of the query state g(x_{z < t}, z_t)
};

class PositionBlindTest : public ::testing::Test {
 protected:
  PositionBlindTest() {
    sampling_.seq_len = sampling_.reuse_len = sampling_.num_predict = 4;
    sampling_.perm_size = 4;
    objective_ = *MakePermutationLm({**ObjectiveNamed("permutation_lm"), model_, sampling_});
  }

  // `order`: slots from 0, all of them targets.
  Batch Lane(const std::vector<int32_t>& order) const {
    TextSample sample;
    sample.step = model_.mem_len;  // with a full memory
    sample.tokens = {7, 8, 9, 10};
    sample.segment.assign(4, 0);
    sample.is_masked.assign(4, 1);
    sample.is_functional.assign(4, 0);
    sample.order.resize(4);
    for (int32_t place = 0; place < 4; ++place) sample.order[order[place]] = place;
    BatchShape shape = objective_->Shape(1);
    shape.content_readout = true;
    Batch batch(shape);
    objective_->BuildLane(sample, 0, batch);
    return batch;
  }

  ThirdTarget Predict(const std::vector<int32_t>& order) const {
    Batch batch = Lane(order);
    const auto state = static_cast<int32_t>(ContentRow(batch.shape, 0) + order[1]);
    const auto query = static_cast<int32_t>(QueryRow(batch.shape, 0) + order[2]);
    for (int64_t slot = 0; slot < 4; ++slot) {
      const int64_t key = ContentKey(batch.shape, 0) + slot;
      const bool is_past = slot == order[0] || slot == order[1];
      EXPECT_EQ(Sees(batch, state, key), is_past);
      EXPECT_EQ(Sees(batch, query, key), is_past);
    }
    ModelRunner runner(model_, kSmallVocab, batch.shape);
    const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 51);
    const std::vector<double> memory = RandomVector(runner.memory_size(), 52);
    ThirdTarget found;
    for (int32_t token = 0; token < kSmallVocab; ++token) {
      SetReadout(0, 0, state, token, 1.0f, batch);
      SetReadout(0, 1, query, token, 1.0f, batch);
      for (int64_t entry = 2; entry < 4; ++entry)
        SetReadout(0, entry, ContentRow(batch.shape, 0) + order[entry], 0, 0.0f, batch);
      const std::vector<float> losses = runner.Run(batch, weights, memory, false).losses;
      found.naive.push_back(std::exp(-losses[0]));
      found.two_streams.push_back(std::exp(-losses[1]));
    }
    return found;
  }

  const ModelConfig model_ = SmallModel();
  SamplingConfig sampling_;
  std::unique_ptr<Objective> objective_;
};

// Half the sum of differences; 0 for equal distributions, 1 for disjoint ones.
double Distance(const Distribution& a, const Distribution& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double{a[i]} - double{b[i]}) / 2;
  return sum;
}

double Sum(const Distribution& p) {
  double sum = 0;
  for (const float value : p) sum += value;
  return sum;
}

TEST_F(PositionBlindTest, OneContentStateForTwoTargetsAndTwoQueryStates) {
  const ThirdTarget fourth = Predict({2, 1, 3, 0});  // 3 -> 2 -> 4 -> 1
  const ThirdTarget first = Predict({2, 1, 0, 3});   // 3 -> 2 -> 1 -> 4
  for (const ThirdTarget& target : {fourth, first}) {
    EXPECT_NEAR(Sum(target.naive), 1, 1e-5);
    EXPECT_NEAR(Sum(target.two_streams), 1, 1e-5);
  }
  EXPECT_EQ(fourth.naive, first.naive) << "the same bits";
  EXPECT_GT(Distance(fourth.two_streams, first.two_streams), 0.01);
}

}  // namespace
}  // namespace anyorder::testing
