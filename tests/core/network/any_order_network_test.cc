// What today's any-order models compute, by the network: nothing leaks, special cases equal other
// models, slot order means nothing.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kLength = 16;
const char* const kNames[] = {"masked_diffusion", "block_diffusion", "eso_lm", "a3", "as_arm"};

ModelConfig WithPositions(Positions positions) {
  ModelConfig model = SmallLearnedModel(kLength);
  model.positions = positions;
  model.rope_base = 50.0;
  return model;
}

TextSample Sample(int64_t lane) {
  return RandomSample(OneWaySampling(), SampleKind::kContiguous, kSmallVocab, lane, 3, false);
}

class AnyOrderNetworkTest : public ::testing::Test {
 protected:
  Batch Build(const std::string& name, const TextSample& sample,
              const AnyOrderConfig& config = {}) {
    return BuildBatch(*MakeObjectiveOrDie(name, model_, OneWaySampling(kLength, config)), {sample});
  }
  ModelRunner::Result Run(const Batch& batch, bool training = false) {
    return RunOnce(model_, batch, training);
  }

  ModelConfig model_ = WithPositions(Positions::kRope);
};

// Losses are rounded to fp32; the sums behind them are fp64.
void ExpectSameLosses(const ModelRunner::Result& some, const ModelRunner::Result& expected) {
  ASSERT_EQ(some.losses.size(), expected.losses.size());
  for (size_t i = 0; i < some.losses.size(); ++i)
    EXPECT_NEAR(some.losses[i], expected.losses[i], 1e-6f * expected.losses[i]) << i;
}

double Mean(const Batch& batch, const ModelRunner::Result& result) {
  return result.step.loss_sum / batch.Divisor();
}

// Another true token at position i changes what is read everywhere, but never the prediction at i
// itself, where the same label is asked for. Not a matter of rounding: what does not read a slot
// has the same bits. A shifted readout asks the slot before.
TEST_F(AnyOrderNetworkTest, NoTargetIsPredictedFromItself) {
  const AnyOrderConfig shifted = {.keep_first_token = true, .shifted_readout = true};
  std::vector<std::pair<std::string, AnyOrderConfig>> cases = {{"masked_diffusion", shifted},
                                                               {"block_diffusion", shifted}};
  for (const char* const name : kNames) cases.emplace_back(name, AnyOrderConfig());
  for (const auto& [name, config] : cases) {
    SCOPED_TRACE(absl::StrCat(name, config.shifted_readout ? ", shifted" : ""));
    const TextSample sample = Sample(4);
    const Batch batch = Build(name, sample, config);
    const std::vector<float> losses = Run(batch).losses;
    int moved = 0, asked = 0;
    for (int64_t i = 0; i < kLength; ++i) {
      TextSample changed = sample;
      changed.tokens[i] = sample.tokens[i] == 5 ? 6 : 5;
      Batch other = Build(name, changed, config);
      ASSERT_EQ(other.weights, batch.weights) << "draws depend on the text";
      other.labels = batch.labels;
      const std::vector<float> changed_losses = Run(other).losses;
      for (size_t entry = 0; entry < losses.size(); ++entry) {
        if (batch.weights[entry] == 0) continue;
        const int64_t read_at = batch.row_pos[batch.readout_rows[entry]];
        if (read_at + (config.shifted_readout ? 1 : 0) == i) {
          EXPECT_EQ(changed_losses[entry], losses[entry]) << "position " << i;
          ++asked;
        } else {
          moved += changed_losses[entry] != losses[entry] ? 1 : 0;
        }
      }
    }
    EXPECT_GT(asked, 2);
    EXPECT_GT(moved, 20) << "hardly anything is read";
  }
}

// Slots carry their position: in whatever order they stand, losses are the same up to the order of
// sums.
TEST_F(AnyOrderNetworkTest, ShuffledSlotsGiveTheSameLosses) {
  for (const Positions positions : {Positions::kRope, Positions::kRelative, Positions::kLearned}) {
    model_ = WithPositions(positions);
    for (const char* const name : kNames) {
      const Batch batch = Build(name, Sample(5));
      ASSERT_EQ(batch.shape.num_keys(), batch.shape.content_rows);
      RandomStream random(5, RandomPurpose::kPermutation, 0, 0);
      const std::vector<int32_t> content = DrawOrder(batch.shape.content_rows, random);
      Batch shuffled = batch;
      for (int64_t to = 0; to < batch.shape.content_rows; ++to) {
        const int32_t from = content[to];
        shuffled.tokens[to] = batch.tokens[from];
        for (const auto& array :
             {&Batch::row_pos, &Batch::row_lim, &Batch::row_grp, &Batch::row_doc, &Batch::key_pos,
              &Batch::key_key, &Batch::key_grp, &Batch::key_doc})
          (shuffled.*array)[to] = (batch.*array)[from];
        for (size_t entry = 0; entry < batch.readout_rows.size(); ++entry)
          if (batch.readout_rows[entry] == from)
            shuffled.readout_rows[entry] = static_cast<int32_t>(to);
      }
      ASSERT_NE(shuffled.row_pos, batch.row_pos);
      SCOPED_TRACE(name);
      ExpectSameLosses(Run(shuffled), Run(batch));
    }
  }
}

// One block is masked diffusion: the same draws, losses, divisor and gradient, the clean copy being
// read by nobody.
TEST_F(AnyOrderNetworkTest, OneBlockIsMaskedDiffusion) {
  for (const MaskDraw draw : {MaskDraw::kRate, MaskDraw::kCount}) {
    const AnyOrderConfig config = {.mask_draw = draw, .block_len = kLength};
    const Batch blocks = Build("block_diffusion", Sample(6), config);
    const Batch masked = Build("masked_diffusion", Sample(6), config);
    EXPECT_EQ(blocks.weights, masked.weights);
    const ModelRunner::Result of_blocks = Run(blocks, true);
    const ModelRunner::Result of_masked = Run(masked, true);
    EXPECT_GT(Norm(of_masked.gradients), 0.01);
    ExpectSameLosses(of_blocks, of_masked);
    EXPECT_NEAR(Mean(blocks, of_blocks), Mean(masked, of_masked), 1e-12 * Mean(masked, of_masked));
    EXPECT_LT(Distance(of_blocks.gradients, of_masked.gradients),
              1e-12 * Norm(of_masked.gradients));
  }
}

// Blocks of one token, all masked: the loss at i is that of a model that reads x_0 .. x_(i-1) from
// left to right, then one <mask> at i.
TEST_F(AnyOrderNetworkTest, BlocksOfOneTokenAreACausalModel) {
  const AnyOrderConfig config = {.mask_rate_min = 1, .mask_rate_max = 1, .block_len = 1};
  const TextSample sample = Sample(7);
  const Batch batch = Build("block_diffusion", sample, config);
  const ModelRunner::Result all = Run(batch);
  double nll = 0;
  Batch prefix = Build("masked_diffusion", sample);
  prefix.weights.assign(prefix.weights.size(), 1.0f);
  for (int64_t i = 0; i < kLength; ++i) {
    for (int64_t j = 0; j < kLength; ++j) {
      SetContentSlot(0, j,
                     j > i ? PadSlot(j)
                           : RankedSlot(j == i ? sample.vocabulary.mask : sample.tokens[j], j,
                                        static_cast<int32_t>(j)),
                     prefix);
    }
    const float expected = Run(prefix).losses[i];
    EXPECT_NEAR(all.losses[i], expected, 1e-6f * expected) << i;
    nll += expected;
  }
  EXPECT_NEAR(Mean(batch, all), nll / kLength, 1e-6 * nll / kLength);
  const std::unique_ptr<Objective> objective =
      MakeObjectiveOrDie("block_diffusion", model_, OneWaySampling(kLength, config));
  EXPECT_EQ(objective->quantity(), "NLL of each token given those before it");
}

// Shifted, blocks of one token are GPT: the clean slot before each predicts it.
TEST_F(AnyOrderNetworkTest, ShiftedBlocksOfOneTokenAreGpt) {
  const AnyOrderConfig config = {.mask_rate_min = 1,
                                 .mask_rate_max = 1,
                                 .keep_first_token = true,
                                 .shifted_readout = true,
                                 .block_len = 1};
  const TextSample sample = Sample(7);
  const std::vector<float> blocks = Run(Build("block_diffusion", sample, config)).losses;
  const std::vector<float> gpt = Run(Build("gpt", sample)).losses;
  for (int64_t i = 1; i < kLength; ++i) EXPECT_NEAR(blocks[i], gpt[i - 1], 1e-6f * gpt[i - 1]) << i;
}

// Without diffusion Eso-LM is that causal model, too.
TEST_F(AnyOrderNetworkTest, EsoLmWithoutDiffusionIsACausalModel) {
  AnyOrderConfig config = {
      .mask_rate_min = 1, .mask_rate_max = 1, .block_len = 1, .diffusion_share = 0};
  const ModelRunner::Result blocks = Run(Build("block_diffusion", Sample(7), config));
  for (const EsoForm form : {EsoForm::kA, EsoForm::kB, EsoForm::kMixed}) {
    config.eso_form = form;
    ExpectSameLosses(Run(Build("eso_lm", Sample(7), config)), blocks);
  }
}

// A3 with single tokens from left to right, and AS-ARM without a prompt, are one two-stream causal
// model.
TEST_F(AnyOrderNetworkTest, SingleGroupsInTextOrderAreThePromptlessAsArm) {
  AnyOrderConfig config = {.group_len_max = 1, .group_order = GroupOrder::kText};
  config.prompt_fraction_min = config.prompt_fraction_max = 0;
  ExpectSameLosses(Run(Build("a3", Sample(8), config)), Run(Build("as_arm", Sample(8), config)));
}

}  // namespace
}  // namespace anyorder::testing
