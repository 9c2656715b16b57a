#include "core/objective/unilm/unilm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/objective/lane_frame.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {
namespace {

constexpr int32_t kCls = 3;
constexpr int32_t kSep = 4;
constexpr int64_t kLanes = 4;

ModelConfig UnilmModel() {
  ModelConfig model = With(SmallLearnedModel(16, 6),
                           "attention_biases = true, embedding_layer_norm = true, mlm_head = true");
  model.next_sentence_head = true;
  return model;
}

SamplingConfig OneWayUnilm() {
  return With(OneWaySampling(), "spans = ngram, mask_fraction = 0.3, num_predict = 16");
}

// Who sees whom as Dong et al. 2019, section 2.3, and figure 1 tell it: `first` slots are [SOS] S1
// [EOS].
bool PaperSees(TextMode mode, int64_t row, int64_t key, int64_t first) {
  switch (mode) {
    case TextMode::kBidirectional: return true;
    case TextMode::kLeftToRight: return key <= row;
    case TextMode::kRightToLeft: return key >= row;
    case TextMode::kSeq2seq: return row < first ? key < first : key < first || key <= row;
  }
  return false;
}

class UnilmTest : public LanesTest {
 protected:
  UnilmTest() : LanesTest("unilm", UnilmModel(), OneWayUnilm()) {}
  Batch Build(const std::vector<TextSample>& samples) const { return BuildBatch(*Make(), samples); }
  // One lane in each mode: lane i at step 0 is in mode i % 4; from lane 40 on three slots are
  // padding.
  std::vector<TextSample> Mixed(int64_t first_lane = 0) const {
    std::vector<TextSample> samples;
    for (int64_t i = 0; i < kLanes; ++i) samples.push_back(Sample(first_lane + i, 0));
    return samples;
  }
  // [SOS] S1 [EOS]: the sample's first functional token is S1's [EOS], and [SOS] comes before.
  static int64_t FirstSegment(const TextSample& sample) {
    const auto first = std::find(sample.is_functional.begin(), sample.is_functional.end(), 1);
    return first - sample.is_functional.begin() + 2;
  }
};

TEST_F(UnilmTest, EveryModeSeesWhatThePaperSays) {
  for (const int64_t first_lane : {0, 4, 8, 40, 44}) {
    const std::vector<TextSample> samples = Mixed(first_lane);
    const Batch batch = Build(samples);
    ASSERT_EQ(batch.shape.query_rows, 0);
    std::set<TextMode> modes;
    for (int64_t b = 0; b < kLanes; ++b) {
      modes.insert(samples[b].mode);
      const int64_t length = sampling_.seq_len - samples[b].padding;
      const int64_t first = FirstSegment(samples[b]);
      for (int64_t row = 0; row < sampling_.seq_len; ++row) {
        for (int64_t key = 0; key < sampling_.seq_len; ++key) {
          const bool sees =
              Sees(batch, ContentRow(batch.shape, b) + row, ContentKey(batch.shape, b) + key);
          const bool is_text = row < length && key < length;
          ASSERT_EQ(sees, is_text && PaperSees(samples[b].mode, row, key, first))
              << "lane " << b << " row " << row << " key " << key;
        }
      }
    }
    EXPECT_EQ(modes.size(), 4u);
  }
}

TEST_F(UnilmTest, TextBeginsWithSosAndSegmentsTellTheModesApart) {
  const std::vector<std::pair<int32_t, int32_t>> segments = {{0, 1}, {4, 5}, {2, 2}, {3, 3}};
  for (const int64_t first_lane : {0, 40}) {
    const std::vector<TextSample> samples = Mixed(first_lane);
    const Batch batch = Build(samples);
    for (int64_t b = 0; b < kLanes; ++b) {
      const int64_t length = sampling_.seq_len - samples[b].padding;
      const int64_t begin = ContentRow(batch.shape, b);
      EXPECT_EQ(batch.tokens[begin], kCls);
      EXPECT_EQ(batch.tokens[begin + length - 1], kSep);
      const int64_t first = FirstSegment(samples[b]);
      for (int64_t slot = 0; slot < length; ++slot) {
        const int64_t row = begin + slot;
        EXPECT_EQ(batch.row_pos[row], slot);
        EXPECT_EQ(batch.tokens[row], slot == 0 ? kCls : samples[b].input_tokens[slot - 1]);
        const auto& [one, two] = segments[b];
        EXPECT_EQ(batch.row_seg[row], slot < first ? one : two) << "lane " << b << " slot " << slot;
      }
      // One segment has one [EOS].
      EXPECT_EQ(first == length, b >= 2);
    }
    EXPECT_EQ(batch.key_seg, batch.row_seg);
  }
}

// On the network itself: what a slot's input can change, through any number of layers, is the
// losses of the rows that see it, in its own lane, to the last bit; padding changes none. All but a
// token or two of each lane are targets.
TEST_F(UnilmTest, NothingLeaksPastAnyOfTheFourMasksInOneBatch) {
  sampling_.mask_fraction = 0.8;
  for (const int64_t first_lane : {0, 40}) {
    const std::vector<TextSample> samples = Mixed(first_lane);
    const Batch batch = Build(samples);
    int64_t blind = 0;
    ExpectReads(model_, batch, [&](int64_t slot, int64_t entry) {
      const int64_t b = slot / sampling_.seq_len;
      const int64_t first = ContentRow(batch.shape, b);
      const int64_t row = batch.readout_rows[entry] - first;
      const bool own = row >= 0 && row < sampling_.seq_len;
      const bool sees = own && slot - first < sampling_.seq_len - samples[b].padding &&
                        PaperSees(samples[b].mode, row, slot - first, FirstSegment(samples[b]));
      blind += own && !sees ? 1 : 0;
      return sees;
    });
    EXPECT_GT(blind, 200) << "hardly any pair that must not see each other was tried";
  }
}

TEST_F(UnilmTest, TrueTokensAreAskedForAndNoTargetIsItsOwnInput) {
  for (const int64_t first_lane : {0, 4, 40}) {
    const std::vector<TextSample> samples = Mixed(first_lane);
    const Batch batch = Build(samples);
    for (int64_t b = 0; b < kLanes; ++b) ExpectAsksForMasked(batch, b, samples[b], 1);
  }
}

// Each lane counts once: what a lane's targets weigh together, its label weighs, too, in
// bidirectional mode and in no other.
TEST_F(UnilmTest, OnlyBidirectionalLanesHaveANextSentenceLabel) {
  const Batch batch = Build(Mixed());
  EXPECT_EQ(batch.summary_weights, (std::vector<float>{5, 0, 0, 0}));
  const ModelRunner::Result result = RunOnce(model_, batch, true);
  EXPECT_EQ(SumNamed("nsp_loss", result.step.sums).weight, 1);
  EXPECT_LE(SumNamed("nsp_accuracy", result.step.sums).sum, 1);
  // The label of the other lanes is not asked for.
  Batch renamed = batch;
  for (int64_t b = 1; b < kLanes; ++b) renamed.summary_labels[b] = 1 - renamed.summary_labels[b];
  const ModelRunner::Result other = RunOnce(model_, renamed, true);
  EXPECT_EQ(SumNamed("nsp_loss", other.step.sums).sum, SumNamed("nsp_loss", result.step.sums).sum);
  EXPECT_EQ(other.gradients, result.gradients);
  renamed.summary_labels[0] = 1 - renamed.summary_labels[0];
  EXPECT_NE(RunOnce(model_, renamed, true).gradients, result.gradients);
}

// StepTest.LossesThatAreToldApartSumToTheLossAndChangeNoGradient has the rest.
TEST_F(UnilmTest, TheLossOfEachModeIsReportedApart) {
  const Batch batch = Build(Mixed());
  EXPECT_EQ(batch.shape.loss_names, (std::vector<std::string>{"bidirectional", "seq2seq",
                                                              "left_to_right", "right_to_left"}));
  // Mode and lane are the same number here.
  for (size_t i = 0; i < batch.loss_ids.size(); ++i)
    EXPECT_EQ(batch.loss_ids[i], static_cast<int64_t>(i) / batch.shape.targets) << i;
}

TEST_F(UnilmTest, SettingsThatItCannotUseAreRefused) {
  ExpectRefusals(
      "unilm", model_, sampling_,
      {{"segments = none", "model.segments must be \"learned\""},
       {"num_segments = 2", "model.num_segments is 2 but unilm has 6 segments"},
       {"spans = subword", "use \"ngram\""},
       {"seq2seq_share = 0.5", "must sum to 1"},
       {"left_to_right_share = -0.2", "left_to_right_share is -0.2 but must be in [0, 1]"},
       {"ngram_prob = 1.5", "ngram_prob is 1.5"},
       {"max_ngram = 1", "max_ngram is 1 but must be at least 2"},
       {[](auto&, auto& s) { s.bidirectional_share = 0, s.seq2seq_share = 2.0 / 3; },
        "sampling.bidirectional_share is 0"}});
}

TEST(FreePairsTest, ObjectivesWithMemoryOrOrderRefusePaddingAndFreePairs) {
  for (const char* const name : {"dae", "permutation_lm"}) {
    SamplingConfig sampling = SmallSampling();
    sampling.spans = SpanKind::kSingle;
    ExpectRefusals(
        name, SmallModel(), sampling,
        {{"short_sequence_prob = 0.1", "short_sequence_prob"}, {"pairs = bert", "pairs"}});
    EXPECT_TRUE(MakeObjective(name, SmallModel(), sampling).ok());
    sampling.spans = SpanKind::kNgram;
    EXPECT_EQ(MakeObjective(name, SmallModel(), sampling).ok(), std::string(name) == "dae");
  }
}

}  // namespace
}  // namespace anyorder::testing
