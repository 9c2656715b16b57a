#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/objective/xlnet/xlnet.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

class DaeTest : public LanesTest {
 protected:
  DaeTest() : LanesTest("dae", SmallModel(), SmallSampling()) {}
};

// Stated by text, not by rank: BERT's "everybody sees everybody", but for text that a later step is
// asked for. Those are the second half's slots, and the rows whose states that step gets to see are
// the first half's.
TEST_F(DaeTest, EverybodySeesEverybodyButRowsThatAreRememberedDoNotSeeLaterText) {
  for (int64_t lane = 0; lane < 6; ++lane) {
    const Batch batch = Build(Sample(lane, 9, lane % 3 == 0));
    ASSERT_EQ(batch.shape.query_rows, 0);
    ExpectSees(batch, [&](int64_t row, int64_t key) {
      const bool is_remembered = row < batch.shape.advance;
      const bool is_later_text = key - model_.mem_len >= batch.shape.advance;
      return !(is_remembered && is_later_text);
    });
  }
}

TEST_F(DaeTest, TheNetworkReadsTheCorruptedTextAndIsAskedForTheTrueOneAtTheSamePlace) {
  for (int64_t lane = 0; lane < 6; ++lane) {
    const TextSample sample = Sample(lane, 3, lane % 2 == 1);
    const Batch batch = Build(sample);
    EXPECT_EQ(batch.tokens, sample.input_tokens);
    EXPECT_NE(batch.tokens, sample.tokens);
    ExpectAsksForMasked(batch, 0, sample, 0);
    EXPECT_EQ(batch.TargetWeight(), 5 - lane % 2);
  }
}

// The reuse part's states are the next step's memory, and its text after the reuse part is the next
// step's reuse part. Were a single state to depend on that text, the next step could read its
// targets there.
TEST_F(DaeTest, NothingOfTheNextStepsTextGetsIntoItsMemory) {
  ModelRunner runner(model_, kSmallVocab, Make()->Shape(1));
  const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 31);
  const std::vector<double> before = RandomVector(runner.memory_size(), 32);
  const TextSample first = Sample(4, 4);
  const Batch next = Build(Sample(4, 5));
  const auto memory_after = [&](const TextSample& sample) {
    return runner.Run(Build(sample), weights, before, false).memory;
  };
  const std::vector<double> memory = memory_after(first);
  const std::vector<float> losses = runner.Run(next, weights, memory, false).losses;
  for (int64_t slot = 0; slot < sampling_.seq_len; ++slot) {
    TextSample changed = first;
    changed.tokens[slot] = changed.input_tokens[slot] =
        (first.input_tokens[slot] + 1) % kSmallVocab;
    const std::vector<double> other = memory_after(changed);
    const bool is_reuse = slot < sampling_.reuse_len;
    // Not a matter of rounding: a state that does not read a slot has the same bits.
    ASSERT_EQ(other != memory, is_reuse) << slot;
    ASSERT_EQ(runner.Run(next, weights, other, false).losses != losses, is_reuse) << slot;
  }
}

TEST_F(DaeTest, ATargetIsPredictedFromTheInputAlone) {
  ExpectPredictedFromTheInputAlone(*Make(), model_, Sample(4, 4), 0);
}

TEST_F(DaeTest, EveryTargetCanUseTheWholeTextOfItsReach) {
  model_.num_layers = 1;  // what a row sees, not what reaches it through others
  const Batch batch = Build(Sample(4, 4));
  ExpectReads(model_, batch, [&](int64_t slot, int64_t entry) {
    return batch.readout_rows[entry] >= sampling_.reuse_len || slot < sampling_.reuse_len;
  });
}

TEST_F(DaeTest, WithNextSentenceEachLaneHasALabelAndSeesAsBefore) {
  const std::unique_ptr<Objective> plain = Make();
  model_.next_sentence_head = true;
  for (int64_t lane = 0; lane < 6; ++lane) {
    const TextSample sample = Sample(lane);
    const Batch batch = Build(sample);
    const Batch without = BuildBatch(*plain, {sample});
    EXPECT_EQ(batch.row_lim, without.row_lim);
    EXPECT_EQ(batch.key_key, without.key_key);
    EXPECT_EQ(batch.summary_rows, std::vector<int32_t>{15});
    EXPECT_EQ(batch.summary_labels, std::vector<int32_t>{sample.b_follows_a ? 1 : 0});
    EXPECT_EQ(batch.summary_weights, std::vector<float>{5.0f});
  }
}

TEST_F(DaeTest, SettingsThatCannotBeUsedAreRefused) {
  ExpectRefusals("dae", model_, sampling_,
                 {{"mask_fraction = 0", "mask_fraction is 0 but must"},
                  {"random_token_prob = 0.3", "random_token_prob=0.3"}});
}

}  // namespace
}  // namespace anyorder::testing
