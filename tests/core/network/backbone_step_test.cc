// What slots can know of one another in backbones other than XLNet's: seen from outside, by
// changing one thing.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/config/attention_windows.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

class BackboneStepTest : public ::testing::Test {
 protected:
  static ModelConfig OneLayer() {
    return With(SmallModel(), "num_layers = 1, mem_len = 0, positions = none, segments = none");
  }
  Batch Make(const std::string& objective, const ModelConfig& model, int64_t step = 1) const {
    return RandomBatch(*MakeObjectiveOrDie(objective, model, sampling_), sampling_, kSmallVocab,
                       {3}, {false}, step);
  }
  ModelRunner::Result Run(const ModelConfig& model, const Batch& batch,
                          const std::vector<double>& weights) {
    ModelRunner runner(model, kSmallVocab, batch.shape);
    return runner.Run(batch, weights, RandomVector(runner.memory_size(), 5), false);
  }
  // With all positions, those of memory too, multiplied and shifted.
  static Batch Moved(Batch batch, int32_t factor, int32_t shift) {
    for (std::vector<int32_t>* positions : {&batch.row_pos, &batch.key_pos}) {
      for (int32_t& position : *positions) position = factor * position + shift;
    }
    return batch;
  }
  std::vector<float> Losses(const ModelConfig& model, const Batch& batch) {
    return Run(model, batch, InitialWeights(model, kSmallVocab, 61)).losses;
  }

  const SamplingConfig sampling_ = SmallSampling();
};

TEST_F(BackboneStepTest, WindowsOfTheConfigurationAreThoseOfABatchAndGiveWayToThem) {
  ModelConfig model = SmallModel();
  const Batch plain = Make("permutation_lm", model);
  const std::vector<float> unlimited = Losses(model, plain);
  model.attention_windows = "3:2 / 4:1:2; 2:*";
  const std::vector<float> windows = Losses(model, plain);
  EXPECT_NE(windows, unlimited);
  Batch batch = plain;
  batch.bands = AttentionWindows(model).value();
  model.attention_windows = "";
  EXPECT_EQ(Losses(model, batch), windows);
  model.attention_windows = "1:1";
  EXPECT_EQ(Losses(model, batch), windows);
  batch.bands.assign(4, kernels::Band());
  EXPECT_EQ(Losses(model, batch), unlimited);
}

// With the other head's output off, a token moves the losses of those rows whose window reaches it.
TEST_F(BackboneStepTest, EachHeadLooksThroughItsOwnWindow) {
  ModelConfig model = OneLayer();
  model.attention_windows = "1:0 / 6:0:2";
  const Batch batch = Make("causal_lm", model);
  const ParameterLayout layout(model, kSmallVocab);
  const ParameterInfo& o = layout.Find("transformer.layer.0.rel_attn.o");
  for (int64_t head = 0; head < 2; ++head) {
    std::vector<double> weights = InitialWeights(model, kSmallVocab, 61);
    for (int64_t i = 0; i < o.shape.num_elements(); ++i) {
      if (i / model.head_dim % 2 != head) weights[o.offset + i] = 0;
    }
    SCOPED_TRACE(head);
    ExpectReads(model, batch, weights, [head](int64_t slot, int64_t row) {
      const int64_t distance = row - slot;
      return head == 0 ? distance == 0 || distance == 1
                       : distance >= 0 && distance <= 12 && distance % 2 == 0;
    });
  }
}

// Rotary scores know differences of positions alone: moving everybody, memory too, changes nothing
// but roundings.
TEST_F(BackboneStepTest, RotaryPositionsAreRelative) {
  ModelConfig model = SmallModel();
  SetKeys("positions = rope, segments = none", model);
  const Batch batch = Make("permutation_lm", model);
  const std::vector<double> weights = InitialWeights(model, kSmallVocab, 61);
  const double loss = Run(model, batch, weights).step.loss_sum;
  for (const int32_t shift : {-1000, 77}) {
    // Angles of a thousand positions are off by a thousand roundings, which a few hundred sums pass
    // on.
    EXPECT_NEAR(Run(model, Moved(batch, 1, shift), weights).step.loss_sum, loss,
                1e3 * 256 * 0x1p-52 * loss);
  }
  Batch stretched = batch;
  for (int32_t& position : stretched.key_pos) position *= 2;
  EXPECT_GT(std::abs(Run(model, stretched, weights).step.loss_sum - loss), 1e-3);
}

// One bucket's number, moved, is noticed by the rows that have a visible key in it and others
// elsewhere; two heads, one moved.
TEST_F(BackboneStepTest, BucketsOfDistanceReachRowsWithSuchAKey) {
  ModelConfig model = OneLayer();
  model.position_bias = PositionBias::kT5Causal;
  model.position_buckets = 8;  // distances 0 .. 3, then 4, 5 and 6, 7 .. 9, 10 and above
  model.position_bias_max_distance = 12;
  const std::vector<int64_t> first = {0, 1, 2, 3, 4, 6, 7, 10};
  const Batch batch = Make("causal_lm", model);
  const ParameterLayout layout(model, kSmallVocab);
  const ParameterInfo& bias = layout.Find("transformer.relative_attention_bias.weight");
  const std::vector<double> weights = InitialWeights(model, kSmallVocab, 61);
  const std::vector<float> losses = Run(model, batch, weights).losses;
  for (int64_t bucket = 0; bucket < 8; ++bucket) {
    std::vector<double> moved = weights;
    moved[bias.offset + bucket * model.num_heads + 1] += 1;
    const std::vector<float> other = Run(model, batch, moved).losses;
    for (int64_t row = 0; row < sampling_.seq_len; ++row) {
      // The first row sees one key, whose weight is 1 whatever its score.
      const bool notices = row > 0 && row >= first[bucket];
      EXPECT_EQ(other[row] != losses[row], notices) << "bucket " << bucket << ", row " << row;
    }
  }
}

TEST_F(BackboneStepTest, BiasByDistanceIsRelativeAndReadsBackwards) {
  ModelConfig model = SmallModel();
  SetKeys("positions = none, position_bias = t5, position_bias_max_distance = 20", model);
  const Batch batch = Make("permutation_lm", model);
  const std::vector<float> losses = Losses(model, batch);
  EXPECT_EQ(Losses(model, Moved(batch, 1, -1000)), losses);
  EXPECT_NE(Losses(model, Moved(batch, 2, 0)), losses);
  Batch mirrored = Moved(batch, -1, 7);
  EXPECT_NE(Losses(model, mirrored), losses);
  mirrored.direction = {1};
  EXPECT_EQ(Losses(model, mirrored), losses);
}

// A query slot starts as mask_emb + P[pos]: moved, it predicts something else. No other target
// notices but those of its group, whose queries see one another.
TEST_F(BackboneStepTest, QueriesKnowTheirLearnedPositionAndSeeTheirGroupOnly) {
  ModelConfig model = OneLayer();
  SetKeys("positions = learned, max_positions = 16", model);
  const Batch plain = Make("permutation_lm", model);
  const Batch grouped = WithGroupedQueries(plain);
  for (const Batch& batch : {plain, grouped}) {
    const std::vector<float> losses = Losses(model, batch);
    int64_t pairs_seen = 0;
    for (int64_t query = 0; query < sampling_.num_predict; ++query) {
      Batch moved = batch;
      const int64_t row = sampling_.seq_len + query;
      int32_t& position = moved.row_pos[row];
      position = (position + 1) % 16;
      const std::vector<float> other = Losses(model, moved);
      for (size_t i = 0; i < losses.size(); ++i) {
        const int32_t reader = batch.readout_rows[i];
        const bool is_group =
            batch.row_grp[reader] >= 0 && batch.row_grp[reader] == batch.row_grp[row];
        const bool notices = batch.weights[i] > 0 && (reader == row || is_group);
        EXPECT_EQ(other[i] != losses[i], notices) << query << " " << i;
        pairs_seen += notices && reader != row ? 1 : 0;
      }
    }
    EXPECT_EQ(pairs_seen > 0, batch.shape.query_is_key);
  }
}

}  // namespace
}  // namespace anyorder::testing
