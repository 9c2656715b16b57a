#include <gtest/gtest.h>

#include <vector>

#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

class BertTest : public LanesTest {
 protected:
  BertTest() : LanesTest("bert", With(SmallModel(), "mem_len = 0"), OneWaySampling()) {
    model_.next_sentence_head = true;
  }
};

TEST_F(BertTest, EverybodySeesEverybody) {
  for (int64_t lane = 0; lane < 4; ++lane) {
    const Batch batch = Build(Sample(lane));
    ASSERT_EQ(batch.shape.query_rows, 0);
    ASSERT_EQ(batch.shape.num_keys(), sampling_.seq_len);
    ExpectSees(batch, [](int64_t, int64_t) { return true; });
    ExpectDistancesInTable(batch);
  }
}

// [CLS] A [SEP] B [SEP] with segments 0 and 1, where the sample is A [SEP] B [SEP] [CLS].
TEST_F(BertTest, TheSequenceBeginsWithClsAndHasTwoSegments) {
  for (int64_t lane = 0; lane < 4; ++lane) {
    const TextSample sample = Sample(lane);
    const Batch batch = Build(sample);
    const int64_t last = sampling_.seq_len - 1;
    EXPECT_EQ(batch.tokens[0], sample.tokens[last]);
    EXPECT_EQ(batch.row_seg[0], 0);
    for (int64_t slot = 1; slot <= last; ++slot) {
      EXPECT_EQ(batch.tokens[slot], sample.input_tokens[slot - 1]);
      EXPECT_EQ(batch.row_seg[slot], sample.segment[slot - 1]);
      EXPECT_GE(batch.row_seg[slot], batch.row_seg[slot - 1]);
    }
    EXPECT_EQ(batch.row_seg[last], 1);
    EXPECT_EQ(batch.key_seg, batch.row_seg);
    for (int64_t slot = 0; slot <= last; ++slot) EXPECT_EQ(batch.row_pos[slot], slot);
    EXPECT_EQ(batch.summary_rows, std::vector<int32_t>{0});
    EXPECT_EQ(batch.summary_labels, std::vector<int32_t>{sample.b_follows_a ? 1 : 0});
  }
}

TEST_F(BertTest, TheTrueTokenIsAskedForWhereTheCorruptedOneStands) {
  for (int64_t lane = 0; lane < 4; ++lane) {
    const TextSample sample = Sample(lane);
    ExpectAsksForMasked(Build(sample), 0, sample, 1);
  }
}

TEST_F(BertTest, ATargetIsPredictedFromTheInputAlone) {
  ExpectPredictedFromTheInputAlone(*Make(), model_, Sample(4), 1);
}

TEST_F(BertTest, TablesTooSmallForTheTextAreRefused) {
  ExpectRefusals("bert", SmallLearnedModel(16, 2), sampling_,
                 {{"max_positions = 15", "model.max_positions is 15"},
                  {"num_segments = 1", "model.num_segments is 1 but bert has 2"}});
}

}  // namespace
}  // namespace anyorder::testing
